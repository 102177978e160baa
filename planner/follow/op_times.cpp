#include "planner/follow/op_times.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "core/base/hash.h"
#include "core/files/cache.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"

namespace rw {

namespace {

using Clock = std::chrono::steady_clock;

// Returns the properties on which an op's time depends. Attributes show in its work.
std::string key_of(const Record& record) {
  std::string key = record.op->name;
  for (const Edge& input : record.inputs)
    key += fmt::format(" {}{}", name(input.dtype), input.shape.str());
  return key + fmt::format(" {} {}", record.cost.flops, record.cost.bytes);
}

// Runs in a thread of its own, to which no dry run, tape or segment applies.
double measure(const std::shared_ptr<Device>& device, const Record& record) {
  const DeviceScope scope(device);
  const NoGrad no_grad;
  std::vector<Tensor> values;
  for (const Edge& input : record.inputs) values.push_back(zeros(input.shape, input.dtype));
  const auto run = [&](int times) {
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) {
      std::vector<Tensor> inputs = values;
      record.op->forward(record.attrs, inputs);
    }
    device->synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count() / times;
  };
  run(1);  // compiles kernels and fills caches
  constexpr double enough = 1e-3;
  double least = run(1);
  for (int times = 2; least * times < enough; times *= 2) least = std::min(least, run(times));
  return std::min(least, run(1));
}

}  // namespace

OpTimes::OpTimes(std::shared_ptr<Device> device) : device_(std::move(device)) {
  check(!device_->backend().is_dry(), "op times", "must be of a device that computes, got {}",
        device_->info().name);
  const DeviceInfo& info = device_->info();
  const std::string id = fmt::format("{} {} {}", info.backend, info.name, info.driver);
  file_ = fmt::format("op-times-{:016x}", fnv1a(std::as_bytes(std::span(id))));
  std::istringstream lines(read_cache_text(file_).value_or(""));
  double seconds = 0;
  for (std::string key; lines >> seconds && lines.get() && std::getline(lines, key);)
    known_[key] = seconds;
}

OpTimes::~OpTimes() {
  if (!is_new_) return;
  std::string text;
  for (const auto& [key, seconds] : known_) text += fmt::format("{:.9f} {}\n", seconds, key);
  write_cache_text(file_, text);
}

std::optional<double> OpTimes::seconds(const Record& record) {
  if (record.cost.flops == 0 && record.cost.bytes == 0) return 0;
  if (record.inputs.empty())
    return {};  // such an op may hold the device for which it makes its
                // outputs
  const auto [found, is_new] = known_.try_emplace(key_of(record), -1.0);
  if (is_new) {
    is_new_ = true;
    std::thread([&, &seconds = found->second] {
      try {
        seconds = measure(device_, record);
      } catch (const Error&) {  // most likely OutOfMemory
      }
    }).join();
    device_->trim();
  }
  return found->second < 0 ? std::nullopt : std::optional(found->second);
}

}  // namespace rw
