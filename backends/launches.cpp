#include "backends/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "backends/open.h"
#include "backends/profiles.h"
#include "backends/vulkan/composer.h"
#include "backends/vulkan/joining_dispatcher.h"
#include "backends/vulkan/pipelines/kernels.h"
#include "backends/vulkan/pipelines/profile.h"
#include "core/files/json_file.h"
#include "core/memory/memory_report.h"

namespace rw {

namespace {

class Counter final : public vulkan::Dispatcher {
 public:
  Counter(const vulkan::Caps& caps, std::function<void(const KernelLaunch&)> launched)
      : caps_(caps), kernels_(caps), composer_(caps), launched_(std::move(launched)) {}

  ~Counter() override { joining_.release(); }

  void run(const KernelCall& call) { composer_.run(call, joining_); }

  const vulkan::Caps& caps() const override { return caps_; }
  bool available(std::string_view kernel, std::span<const Binding> bindings) const override {
    return kernels_.find(kernel, bindings) != nullptr;
  }
  void dispatch(const KernelCall& call) override {
    const vulkan::Kernel& kernel = kernels_.get(call.kernel, call.bindings);
    const vulkan::Shader& shader = kernel.address ? *kernel.address : *kernel.descriptors;
    const auto groups = vulkan::workgroups(shader, call, caps_);
    std::string dtypes;
    for (const Binding& b : call.bindings)
      dtypes += fmt::format("{}{}", dtypes.empty() ? "" : " ", name(b.dtype));
    const uint64_t count = uint64_t{groups[0]} * groups[1] * groups[2];
    launched_({.kernel = std::string(call.kernel),
               .dtypes = std::move(dtypes),
               .workgroups = count,
               .waves = static_cast<double>(count) / caps_.multiprocessors,
               .bytes = bytes_moved(call),
               .flops = call.flops});
  }

 private:
  const vulkan::Caps caps_;
  const vulkan::Kernels kernels_;
  const vulkan::Composer composer_;
  const std::function<void(const KernelLaunch&)> launched_;
  vulkan::JoiningDispatcher joining_{*this, nullptr};
};

vulkan::Caps caps_to_count(const std::string& device) {
  const bool is_dry = device.starts_with("dry:");
  const std::string what = is_dry ? device.substr(4) : device;
  if (what.ends_with(".json"))
    return vulkan::parse_caps(read_config_text(find_profile(what)), what);
  check<DeviceError>(what.starts_with("vulkan"), "launches",
                     "a device must be 'vulkan...' or 'dry:FILE.json', as others have no "
                     "workgroups; got '{}'",
                     device);
  return vulkan::parse_caps(device_profile(what), what);
}

}  // namespace

std::unique_ptr<Backend> open_counting(const std::string& device,
                                       std::function<void(const KernelLaunch&)> launched) {
  const vulkan::Caps caps = caps_to_count(device);
  const auto counter = std::make_shared<Counter>(caps, std::move(launched));
  return vulkan::make_dry_backend(caps, vulkan::to_info(caps),
                                  [counter](const KernelCall& call) { counter->run(call); });
}

std::string launch_table(std::span<const KernelLaunch> launches) {
  using Row = std::tuple<uint64_t, std::string, std::string, uint64_t, double, double>;
  std::map<Row, size_t> rows;
  for (const KernelLaunch& l : launches)
    ++rows[{l.workgroups, l.kernel, l.dtypes, l.bytes, l.flops, l.waves}];
  std::string text = fmt::format("{:>6} {:>10} {:>8} {:>11} {:>9}  {}\n", "times", "workgroups",
                                 "waves", "bytes", "MFLOP", "kernel");
  for (const auto& [row, times] : rows) {
    const auto& [workgroups, kernel, dtypes, bytes, flops, waves] = row;
    text += fmt::format("{:>6} {:>10} {:>8.2f} {:>11} {:>9.1f}  {} {}\n", times, workgroups, waves,
                        format_bytes(bytes), flops / 1e6, kernel, dtypes);
  }
  return text;
}

}  // namespace rw
