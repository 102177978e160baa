#include "planner/forecast/step_time.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "core/files/file.h"
#include "core/tensor/primitives.h"
#include "ops/ops.h"

namespace rw {

double DeviceSpeed::seconds(const WorkByPhase& work, uint64_t from_files) const {
  double passes = 0, copies = 0, update = 0, bus = 0, on_host = 0;
  const double each_way = (host.to_host + host.from_host) / 2;
  for (int i = 0; i < phase_count; ++i) {
    const Work& w = work[i];
    const double kernels = w.flops / flops + static_cast<double>(w.bytes) / bytes +
                           static_cast<double>(w.calls) * kernel;
    const auto moved = static_cast<double>(w.offloaded + w.over_bus);
    const bool is_update = static_cast<Phase>(i) == Phase::update;
    (is_update ? update : passes) += kernels;
    if (host.updates > 0) on_host += static_cast<double>(w.on_host) / host.updates;
    if (each_way > 0) (is_update ? bus : copies) += moved / each_way;
  }
  const auto read = static_cast<double>(from_files);
  if (each_way > 0) copies += read / each_way;
  return std::max({passes, copies, read / file}) + std::max({update, bus, on_host});
}

DeviceSpeed assumed_speed(const DeviceInfo& info) {
  return {.host = info.host_bandwidth};
}

namespace {

// The least of some times, after one that prepares.
double best_seconds(Device& device, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    device.synchronize();
    const auto start = Clock::now();
    run();
    device.synchronize();
    const std::chrono::duration<double> taken = Clock::now() - start;
    if (i > 0) best = std::min(best, taken.count());
  }
  return best;
}

}  // namespace

DeviceSpeed measure_speed(const std::shared_ptr<Device>& device, DType dtype) {
  const NoGrad guard;
  const auto zeros_of = [&](const Shape& shape) {
    Tensor t = empty(shape, dtype, device);
    fill_(t, 0);
    return t;
  };
  DeviceSpeed speed = assumed_speed(device->info());
  speed.is_measured = true;
  const Tensor one = zeros_of({1});
  speed.kernel = best_seconds(*device,
                              [&] {
                                for (int i = 0; i < 16; ++i) (void)add(one, one);
                              }) /
                 16;
  for (int64_t n = 256; n <= 4096; n *= 2) {
    const Tensor a = zeros_of({n, n});
    const double seconds = best_seconds(*device, [&] { (void)matmul(a, a); });
    speed.flops = 2.0 * static_cast<double>(n * n * n) / seconds;
    if (seconds > 2e-3) break;
  }
  for (int64_t n = int64_t{1} << 20; n <= int64_t{1} << 24; n *= 4) {
    const Tensor a = zeros_of({n});
    const double seconds = best_seconds(*device, [&] { (void)add(a, a); });
    speed.bytes = 3.0 * static_cast<double>(a.bytes()) / seconds;
    if (seconds > 2e-3) break;
  }
  return speed;
}

double measure_file_speed(const std::filesystem::path& path) {
  std::filesystem::path largest = path;
  uint64_t most = 0;
  std::error_code no_folder;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, no_folder))
    if (entry.is_regular_file() && entry.file_size() >= most)
      largest = entry.path(), most = entry.file_size();
  const InputFile file(largest);
  const uint64_t bytes = std::min(file.size(), uint64_t{64} << 20);
  const uint64_t begin = file.size() - bytes;  // weights are behind headers
  file.forget(begin, bytes);
  std::vector<std::byte> piece(std::max<uint64_t>(bytes / 4, 1));
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t done = 0; done + piece.size() <= bytes; done += piece.size())
    file.read(begin + done, piece);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / std::max(taken.count(), 1e-6);
}

}  // namespace rw
