// Describes the cpu and each Vulkan device: limits, the features that Rewind uses, those that the
// self-check refused and why; with --kernels, how every kernel runs there, and with --pipelines,
// the results of the driver's compiler. With --ops, it lists the ops instead.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>

#include "backends/open.h"
#include "core/backend/unsupported.h"
#include "core/base/environment.h"
#include "core/base/error.h"
#include "core/memory/memory_report.h"
#include "ops/list/op_list.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

using namespace rw;

namespace {

struct Found {
  std::string opens;  // "vulkan:0", "cpu"
  DeviceListing listing;
  std::unique_ptr<Backend> device;  // null where it cannot be used
  std::string fault;

  bool is_vulkan() const { return opens != "cpu"; }
};

// The Vulkan devices that `choice` means.
void add_vulkan(std::vector<Found>& all, const std::string& choice) {
  std::vector<DeviceListing> listings = list_devices();
  for (size_t i = 0; i < listings.size(); ++i) {
    const DeviceInfo& info = listings[i].info;
    const bool is_any = choice.empty() || choice == "vulkan";
    if (!is_any && !device_matches(info.name, info.uuid, i, choice)) continue;
    Found found{fmt::format("vulkan:{}", i), std::move(listings[i]), nullptr, ""};
    try {
      found.device = open_backend(found.opens);
    } catch (const Error& e) {
      found.fault = e.what();
    }
    all.push_back(std::move(found));
  }
}

// `missing` says why there is no Vulkan device, if there is none.
std::vector<Found> look(const std::string& choice, std::string& missing) {
  std::vector<Found> all;
  try {
    if (choice != "cpu") add_vulkan(all, choice);
  } catch (const DeviceError& e) {
    missing = e.what();
  }
  if (choice.empty() || choice == "cpu") {
    Found found{"cpu", {.type = "CPU"}, open_backend("cpu"), ""};
    found.listing.info = found.device->info();
    all.push_back(std::move(found));
  }
  check<DeviceError>(!all.empty(), "info", "no device matches '{}'{}", choice,
                     missing.empty() ? "" : ": " + missing);
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

// The results of the self-check and of `tune` for it.
void print_proved(const DeviceInfo& info) {
  if (info.refused.empty())
    fmt::print("  self-check    {}\n",
               is_without("self-check") ? "not run (REWIND_WITHOUT=self-check)" : "passed");
  for (const RefusedFeature& f : info.refused)
    fmt::print("  REFUSED       {}: with it, {}\n", f.name, f.fault);
  const std::string untuned =
      is_without("tuning") ? "not used (REWIND_WITHOUT=tuning)" : "none: ./rewind tune";
  fmt::print("  tuning        {}\n", info.tuning.empty() ? untuned : info.tuning);
}

void print(const Found& found, bool kernels) {
  const DeviceInfo& info = found.device ? found.device->info() : found.listing.info;
  fmt::print("{}  {}, {}\n", found.opens, info.name, found.listing.type);
  fmt::print("  driver        {}\n", info.driver);
  if (found.is_vulkan()) fmt::print("  uuid          {}\n", info.uuid);
  fmt::print("  memory        {}, blocks of at most {}\n", format_bytes(info.memory_bytes),
             format_bytes(info.max_block_bytes));
  if (const HostBandwidth& copies = info.host_bandwidth; copies.gains())
    fmt::print(
        "  host memory   copies at {:.1f} GB/s there, {:.1f} GB/s back; updates at {:.1f} GB/s\n",
        copies.to_host / 1e9, copies.from_host / 1e9, copies.updates / 1e9);
  if (found.is_vulkan()) fmt::print("  subgroups     of {}\n", info.subgroup_size);
  if (!found.device) return fmt::print("  NOT USABLE    {}\n", found.fault);
  fmt::print("  in use        {}\n", joined(info.features));
  if (found.is_vulkan()) print_proved(info);
  if (!kernels) return;
  for (const KernelVariant& v : found.device->kernel_variants())
    fmt::print("  {:<28} {:<24} {}\n", v.kernel, v.dtypes,
               v.variant.empty() ? "CANNOT RUN: lacks " + v.lacks : v.variant);
}

// The largest numbers of one module's pipelines, which differ only in constants.
struct Largest {
  size_t pipelines = 0;
  std::optional<uint64_t> registers, spills, shared_bytes, instructions;

  void add(const PipelineStatistics& s) {
    ++pipelines;
    registers = std::max(registers, s.registers);
    spills = std::max(spills, s.spills);
    shared_bytes = std::max(shared_bytes, s.shared_bytes);
    instructions = std::max(instructions, s.instructions);
  }
};

std::string number(const std::optional<uint64_t>& value) {
  return value ? std::to_string(*value) : "-";
}

void print_pipelines(const std::vector<PipelineStatistics>& all) {
  std::map<std::string, Largest> modules;
  for (const PipelineStatistics& s : all)
    modules[fmt::format("{:<26} {:<28} {:<15} {:<12}", s.kernel, s.dtypes, s.storage, s.bindings)]
        .add(s);
  fmt::print("  {:<84} {:>9} {:>9} {:>6} {:>6} {:>12}\n", "pipelines, and the most of each module",
             "pipelines", "registers", "spills", "shared", "instructions");
  for (const auto& [name, m] : modules)
    fmt::print("  {:<84} {:>9} {:>9} {:>6} {:>6} {:>12}\n", name, m.pipelines, number(m.registers),
               number(m.spills), number(m.shared_bytes), number(m.instructions));
}

// Missing numbers are left out.
nlohmann::json to_json(const PipelineStatistics& s, bool searched) {
  nlohmann::json json = {{"kernel", s.kernel},
                         {"dtypes", s.dtypes},
                         {"storage", s.storage},
                         {"bindings", s.bindings},
                         {"constants", s.constants},
                         {"subgroup_size", s.subgroup_size},
                         {"driver", nlohmann::json::object()}};
  for (const auto& [name, value] : s.raw) json["driver"][name] = value;
  const auto add = [&](const char* name, const std::optional<uint64_t>& value) {
    if (value) json[name] = *value;
  };
  add("registers", s.registers);
  add("spills", s.spills);
  add("shared_bytes", s.shared_bytes);
  add("instructions", s.instructions);
  if (searched) json["found"] = s.found;
  return json;
}

nlohmann::json to_json(const Found& found) {
  const DeviceInfo& info = found.device ? found.device->info() : found.listing.info;
  nlohmann::json json = {{"device", found.opens},
                         {"name", info.name},
                         {"type", found.listing.type},
                         {"driver", info.driver},
                         {"uuid", info.uuid},
                         {"memory_bytes", info.memory_bytes},
                         {"max_block_bytes", info.max_block_bytes},
                         {"to_host", info.host_bandwidth.to_host},
                         {"from_host", info.host_bandwidth.from_host},
                         {"host_updates", info.host_bandwidth.updates},
                         {"subgroup_size", info.subgroup_size},
                         {"features", info.features},
                         {"tuning", info.tuning},
                         {"usable", found.device != nullptr},
                         {"refused", nlohmann::json::array()},
                         {"kernels", nlohmann::json::array()}};
  if (!found.device) json["fault"] = found.fault;
  for (const RefusedFeature& f : info.refused)
    json["refused"].push_back({{"feature", f.name}, {"fault", f.fault}});
  if (found.device)
    for (const KernelVariant& v : found.device->kernel_variants())
      json["kernels"].push_back(
          {{"kernel", v.kernel}, {"dtypes", v.dtypes}, {"variant", v.variant}, {"lacks", v.lacks}});
  return json;
}

// Compiles pipelines and prints them, or adds them to the device's `json` if there is one.
void tell_pipelines(const Found& found, const std::string& text, const std::string& only,
                    nlohmann::json* json) try {
  const std::vector<PipelineStatistics> compiled = found.device->pipeline_statistics(text, only);
  if (!json) return print_pipelines(compiled);
  for (const PipelineStatistics& s : compiled)
    (*json)["pipelines"].push_back(to_json(s, !text.empty()));
} catch (const Unsupported& e) {
  if (json)
    (*json)["pipelines_fault"] = e.what();
  else
    fmt::print("  pipelines     {}\n", e.what());
}

void print_ops(bool json) {
  nlohmann::json all = nlohmann::json::array();
  if (!json) fmt::print("{:<34} {:<10} {:<14} {}\n", "op", "dtypes", "autocast", "PyTorch's name");
  for (const OpInfo& op : op_list())
    if (json)
      all.push_back({{"op", op.name},
                     {"signature", op.signature},
                     {"dtypes", op.dtypes},
                     {"autocast", op.autocast},
                     {"order", op.order},
                     {"torch", op.torch}});
    else
      fmt::print("{:<34} {:<10} {:<14} {}\n", op.name, op.dtypes,
                 *op.autocast ? op.autocast : "not listed", *op.torch ? op.torch : "-");
  if (json) fmt::print("{}\n", all.dump(2));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Prints how Rewind uses the devices: features, self-check, kernel variants.");
  std::string choice;
  std::string text, only;
  bool json = false, kernels = false, pipelines = false, ops = false;
  shared_option(app, "--device", choice, "only this one");
  app.add_flag("--kernels", kernels, "print how every kernel runs, too");
  app.add_flag("--pipelines", pipelines,
               "compile every pipeline that may be asked for (minutes): registers, spills, shared "
               "memory and instructions, as the driver reports them");
  app.add_flag("--ops", ops,
               "list the ops instead: their dtypes, rules of Autocast and names in PyTorch");
  shared_option(app, "--only", only, "of the kernels whose pipelines are compiled");
  app.add_option("--count", text, "count this text in the pipelines' machine code, for --json");
  shared_flag(app, "--json", json, "with the kernels");
  return run_program(
      app, argc, argv,
      [&] {
        if (ops) return print_ops(json);
        nlohmann::json all = nlohmann::json::array();
        bool has_gpu = false;
        std::string no_vulkan;
        if (pipelines && choice.empty()) choice = "vulkan";
        for (const Found& found : look(choice, no_vulkan)) {
          has_gpu |= !found.listing.info.is_cpu;
          if (json)
            all.push_back(to_json(found));
          else
            print(found, kernels);
          if (pipelines && found.device && found.is_vulkan())
            tell_pipelines(found, text, only, json ? &all.back() : nullptr);
        }
        if (!json && !no_vulkan.empty()) fmt::print("NO VULKAN     {}\n", no_vulkan);
        const bool is_one = !choice.empty() && choice != "vulkan";
        const std::string missing = has_gpu || is_one ? "" : unoffered_gpu();
        if (!json && !missing.empty()) fmt::print("NO GPU IN USE: {}\n", missing);
        if (json)
          fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
      },
      true);
}
