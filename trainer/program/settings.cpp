#include "trainer/program/settings.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "core/base/hash.h"
#include "data/base/files.h"
#include "trainer/program/ranks.h"

namespace rw {

namespace {

// A rank may compute on another device of the same kind (DataParallel checks that), and may be
// silent.
constexpr std::array of_a_rank = {"--device", "--quiet"};

// These settings may change when a run is resumed; docs/resuming.md says the same.
constexpr std::array may_change = {
    // The length of the run: the schedule is that of the new total.
    "--steps", "--epochs",
    // The output.
    "--resume", "--restart", "--change-dtype", "--snapshot-every", "--save", "--report", "--quiet",
    "--json-lines", "--timeline", "--trace", "--save-profile",
    // Monitors and evaluations.
    "--check-numerics", "--gradient-ranges", "--beam", "--sample", "--allow-rise",
    // The setting "the data" has their contents.
    "--data", "--text", "--task", "--strict",
    // The setting "--lr" has their result.
    "--scale-lr", "--reference-batch",
    // Memory, which leaves the bits as they are.
    "--checkpoint", "--checkpoint-every", "--host-boundaries", "--memory-budget", "--recompute",
    "--plan-effort", "--memory-limit", "--memory", "--host-memory", "--offload", "--shard",
    // The setting "the device" describes it.
    "--device"};

// These settings may change as well, but the results are then not bit-equal to those of an
// uninterrupted run, as a note says.
constexpr std::array changes_bits = {"--dtype", "--keep-8-bits", "--mlp-rows", "the device"};

// Whether updates are made by the host's processor in one of both runs, which gives other bits.
bool changes_updates(std::string_view name, std::string_view before, std::string_view now) {
  constexpr std::string_view by_host = "+updates";
  return name == "--offload" && before.ends_with(by_host) != now.ends_with(by_host);
}

template <class List>
bool is_among(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

// CLI11 shows six digits of a number, so a number that was given with more is shown in full.
std::string in_full(const std::string& shown, const std::vector<std::string>& given) {
  if (given.size() != 1) return shown;
  const std::string& text = given[0];
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return shown;
  return fmt::format("{:.6g}", number) == shown ? fmt::format("{}", number) : shown;
}

std::string value_of(CLI::Option& option) {
  if (option.get_items_expected() == 0) return option.count() > 0 ? "true" : "false";
  option.capture_default_str();  // updates the option's text from its variable
  return in_full(option.get_default_str(), option.results());
}

const std::string& shown(const std::string& value) {
  static const std::string nothing = "not given";
  return value.empty() ? nothing : value;
}

// CLI11 takes the program's name from the command line, with its folder.
std::string file_name(const CLI::App& program) {
  return std::filesystem::path(program.get_name()).filename().string();
}

constexpr const char* the_command = "the command";

// A program's own settings always have the same names.
void check_names(const std::string& folder, const Settings& then, const Settings& now) {
  const auto command = [](const Settings& settings) {
    const auto found = settings.find(the_command);
    return found == settings.end() ? "another" : found->second;
  };
  check<FileError>(command(then) == command(now), "resume",
                   "'{}' is of another program: {}, not {}; use another folder, or --restart",
                   folder, command(then), command(now));
  std::vector<std::string> others;
  const auto collect = [&](const Settings& some, const Settings& all) {
    for (const auto& [name, value] : some)
      if (!all.contains(name)) others.push_back(name);
  };
  collect(then, now);
  collect(now, then);
  constexpr size_t most = 5;
  if (others.size() > most) others.resize(most);
  check<FileError>(others.empty(), "resume",
                   "'{}' is of another version of this program: both must have {}; resume with "
                   "that one, use another folder, or --restart",
                   folder, fmt::join(others, ", "));
}

}  // namespace

Settings settings_of(CLI::App& command) {
  if (const auto called = command.get_subcommands(); !called.empty())
    return settings_of(*called.front());
  const CLI::App* const program = command.get_parent();
  const std::string of =
      program ? file_name(*program) + " " + command.get_name() : file_name(command);
  Settings settings = {{the_command, of}};
  for (CLI::Option* option : command.get_options())
    settings.emplace(option->get_name(), value_of(*option));
  return settings;
}

Settings data_settings(std::initializer_list<uint64_t> data) {
  uint64_t hash = fnv1a_start;
  for (const uint64_t part : data) hash = fnv1a(hash, part);
  return {{"the data", fmt::format("{:016x}", hash)}};
}

Settings run_settings(CLI::App& command, double rate, std::initializer_list<uint64_t> data) {
  Settings settings = settings_of(command);
  settings["--lr"] = fmt::format("{}", static_cast<float>(rate));  // as optimizers take it
  settings.merge(data_settings(data));
  return settings;
}

void check_ranks_alike(const Settings& settings) {
  if (rank_count() == 1) return;
  std::vector<Claim> claims = {
      {"the program's file", fmt::format("{:016x}", file_hash("/proc/self/exe"))}};
  for (const auto& [name, value] : settings)
    if (!is_among(of_a_rank, name)) claims.push_back({name, shown(value)});
  check_alike(world(), claims);
}

void check_resumed(const std::string& folder, const Settings& then, const Settings& now,
                   bool change_dtype) {
  check_names(folder, then, now);
  std::vector<std::string> differences;
  for (const auto& [name, value] : now) {
    const std::string& before = then.at(name);
    const bool gives_other_bits =
        is_among(changes_bits, name) || changes_updates(name, before, value);
    if (value == before || (is_among(may_change, name) && !gives_other_bits)) continue;
    const bool is_dtype = name == "--dtype";
    if (!gives_other_bits || (is_dtype && !change_dtype))
      differences.push_back(fmt::format("{} was {} there and is {} now{}", name, shown(before),
                                        shown(value),
                                        is_dtype ? " (--change-dtype allows that)" : ""));
    else if (is_first_rank())
      fmt::print(
          stderr,
          "note: '{}' is resumed with {} {} instead of {}: the results will not be bit-equal to "
          "those of an uninterrupted run\n",
          folder, name, shown(value), shown(before));
  }
  check<FileError>(differences.empty(), "resume",
                   "'{}' is of another run: {}; resume with the earlier settings, use another "
                   "folder, or --restart",
                   folder, fmt::join(differences, ", "));
}

}  // namespace rw
