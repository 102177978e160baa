#include "backends/tune.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <set>

#include "backends/open.h"
#include "backends/vulkan/composer.h"
#include "backends/vulkan/device/tuning_file.h"
#include "backends/vulkan/matrix/matrix.h"
#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/pipelines/profile.h"
#include "backends/vulkan/tuning/tuner.h"
#include "backends/vulkan/tuning/ways.h"

namespace rw {

namespace {

using vulkan::Caps;
using vulkan::Product;

Caps caps_to_tune(const std::string& device) {
  check<DeviceError>(device.starts_with("vulkan"), "tune",
                     "a device must be 'vulkan' or 'vulkan:...': others have one way to run a "
                     "product; got '{}'",
                     device);
  return vulkan::parse_caps(device_profile(device), device);
}

// The products of one class, the largest first.
struct Class {
  std::string name;
  double flops = 0;  // of the largest product
  std::vector<Product> products;
};

// The wanted classes, of few products each, in the order in which they are measured.
std::vector<Class> classes_of(std::span<const std::string> lines, const Caps& caps,
                              const TuneOptions& options) {
  const size_t most = options.quick ? 1 : 3;  // products of a class
  std::map<std::string, std::multimap<double, Product, std::greater<>>> found;
  for (const std::string& line : std::set(lines.begin(), lines.end())) {
    Product product = vulkan::parse_product(line);
    const std::string name = vulkan::class_of(product.call());
    if (name.empty() || name.find(options.only) == name.npos) continue;
    const double flops = vulkan::flops_of(product.call(), caps);
    found[name].emplace(flops, std::move(product));
  }
  std::vector<Class> all;
  for (auto& [name, products] : found) {
    Class c{name, products.begin()->first, {}};
    for (auto& [flops, product] : products)
      if (c.products.size() < most) c.products.push_back(std::move(product));
    all.push_back(std::move(c));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Class& a, const Class& b) { return a.flops > b.flops; });
  return all;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

std::string way(const vulkan::Choice& choice) {
  return choice == vulkan::Choice{} ? "standard" : vulkan::name(choice);
}

TunedClass measured(Backend& device, const Caps& caps, const Class& c, const TuneOptions& options,
                    vulkan::Tuning& tuning) {
  TunedClass found{.name = c.name, .products = c.products.size()};
  try {
    vulkan::Verdict verdict = options.quick ? vulkan::measure(device, caps, c.products, 0.005, 7)
                                            : vulkan::measure(device, caps, c.products);
    found.ways = verdict.ways;
    found.standard = way(verdict.standard);
    found.choice = way(verdict.choice);
    found.seconds = verdict.seconds;
    found.ratio = verdict.ratio;
    found.workspace_before = verdict.workspace[0];
    found.workspace_after = verdict.workspace[1];
    found.wrong = std::move(verdict.wrong);
    tuning.choices.erase(c.name);
    if (verdict.choice != verdict.standard) tuning.choices.emplace(c.name, verdict.choice);
  } catch (const OutOfMemory& e) {
    found.fault = e.what();
  }
  return found;
}

TunedClass listed(const Caps& caps, const Class& c) {
  std::vector<KernelCall> calls;
  for (const Product& p : c.products) calls.push_back(p.call());
  TunedClass found{.name = c.name, .products = c.products.size()};
  found.ways = vulkan::admitted(calls, caps).size();
  const auto kept = caps.tuning.choices.find(c.name);
  found.standard = way(vulkan::Ways(calls, caps).standard());
  found.choice = kept == caps.tuning.choices.end() ? found.standard : way(kept->second);
  return found;
}

}  // namespace

std::unique_ptr<Backend> open_listening(const std::string& device,
                                        const std::shared_ptr<std::vector<std::string>>& products) {
  const Caps caps = caps_to_tune(device);
  return vulkan::make_dry_backend(caps, vulkan::to_info(caps), [products](const KernelCall& call) {
    if (!vulkan::class_of(call).empty()) products->push_back(vulkan::line_of(call));
  });
}

std::vector<std::string> read_tune_log(const std::string& file) {
  std::ifstream in(file);
  check<FileError>(in.is_open(), "tune", "'{}' must be a file that can be read", file);
  std::set<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return {lines.begin(), lines.end()};
}

size_t tune(const TuneOptions& options, std::span<const std::string> products,
            const std::function<void(const TunedClass&)>& each) {
  const Caps caps = caps_to_tune(options.device);
  const std::vector<Class> classes = classes_of(products, caps, options);
  if (!options.measures) {
    for (const Class& c : classes) each(listed(caps, c));
    return caps.tuning.choices.size();
  }
  const std::unique_ptr<Backend> device = open_backend(options.device);
  vulkan::Tuning tuning = vulkan::read_tuning(caps);
  if (!caps.unified_memory) {
    const HostBandwidth host = vulkan::measure_host(*device);
    tuning.to_host = static_cast<uint64_t>(host.to_host);
    tuning.from_host = static_cast<uint64_t>(host.from_host);
    tuning.host_updates = static_cast<uint64_t>(host.updates);
  }
  const auto save = [&] {
    tuning.made = now();
    vulkan::save_tuning(caps, tuning);
  };
  try {
    for (const Class& c : classes) each(measured(*device, caps, c, options, tuning));
  } catch (...) {
    save();
    throw;
  }
  save();
  return tuning.choices.size();
}

bool forget_tuning(const std::string& device) {
  return vulkan::forget_tuning(caps_to_tune(device));
}

}  // namespace rw
