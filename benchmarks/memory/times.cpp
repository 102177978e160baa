#include "benchmarks/memory/times.h"

#include <algorithm>
#include <map>

#include "backends/open.h"
#include "benchmarks/memory/measure.h"
#include "core/memory/default_device.h"

namespace rw::memory {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the properties in which results must agree to be compared; batches may differ.
std::string model_of(const Result& r) {
  return fmt::format("{} {} {} {} {}", r.row, r.about.model, r.about.depth, r.about.input,
                     variant(r.about));
}

// Seconds of a sample, by round.
using Seconds = std::vector<double>;

std::vector<Seconds> run_in_turn(const std::vector<Result*>& ways, const std::string& device,
                                 size_t rounds) {
  std::vector<Seconds> seconds(ways.size());
  // Steps of seconds vary little: the real runs, one after another, are their only round.
  if (std::ranges::all_of(ways, [](const Result* r) { return r->real && r->real->seconds > 1; })) {
    for (size_t k = 0; k < ways.size(); ++k)
      seconds[k] = {ways[k]->real->seconds / static_cast<double>(ways[k]->about.batch)};
    return seconds;
  }
  for (size_t round = 0; round < rounds; ++round)
    for (size_t k = 0; k < ways.size(); ++k) {
      const DeviceScope scope(Device::create(open_backend(device)));  // its memory is fresh
      double step = 0;
      ways[k]->run(nullptr, &step);
      seconds[k].push_back(step / static_cast<double>(ways[k]->about.batch));
    }
  return seconds;
}

StepTimes summary(const Result& way, const Seconds& seconds, const Seconds& plain,
                  const DeviceInfo& device) {
  Seconds on_top;
  for (size_t i = 0; i < seconds.size(); ++i) on_top.push_back(seconds[i] / plain[i] - 1);
  const auto [least, most] = std::minmax_element(on_top.begin(), on_top.end());
  return {.device = fmt::format("{} ({})", device.name, device.driver),
          .rounds = seconds.size(),
          .seconds = median(seconds) * static_cast<double>(way.about.batch),
          .on_top = median(on_top),
          .least = *least,
          .most = *most};
}

void time_model(const std::vector<Result*>& ways, const std::string& device_name,
                const DeviceInfo& device, size_t rounds) {
  const auto plain =
      std::find_if(ways.begin(), ways.end(), [](const Result* r) { return r->method == "plain"; });
  if (plain == ways.end() || ways.size() < 2) return;
  const std::vector<Seconds> seconds = run_in_turn(ways, device_name, rounds);
  const Seconds& of_plain = seconds[static_cast<size_t>(plain - ways.begin())];
  for (size_t k = 0; k < ways.size(); ++k)
    ways[k]->times = summary(*ways[k], seconds[k], of_plain, device);
}

}  // namespace

void time_steps(std::span<Result> results, const std::string& device_name, size_t rounds) {
  if (rounds == 0) return;
  const std::shared_ptr<Device> device = Device::create(open_backend(device_name));
  const DeviceInfo& info = device->info();
  std::map<std::string, std::vector<Result*>> models;
  for (Result& r : results)
    if (r.run && r.method != "front" && has_room(info, r)) models[model_of(r)].push_back(&r);
  for (const auto& [name, ways] : models) time_model(ways, device_name, info, rounds);
}

}  // namespace rw::memory
