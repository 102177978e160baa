#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "backends/call_cache.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/plan.h"
#include "backends/dry/dry_backend.h"
#include "backends/reference/host_backend.h"
#include "backends/reference/run_kernel.h"
#include "core/base/error.h"

namespace rw {

namespace {

using Plans = CallCache<const cpu::Plan>;

struct Planned {
  std::string_view kernel;
  std::shared_ptr<const cpu::Plan> (*plan)(const KernelCall& call);
};
constexpr Planned planned[] = {{"matmul", cpu::plan_matmul},
                               {"conv2d", cpu::plan_convolution},
                               {"conv2d_dgrad", cpu::plan_convolution},
                               {"conv2d_wgrad", cpu::plan_convolution}};

std::shared_ptr<const cpu::Plan> plan(Plans& plans, const KernelCall& call) {
  const auto* found = std::ranges::find(planned, call.kernel, &Planned::kernel);
  if (found == std::end(planned)) return nullptr;
  return plans.get(call, static_cast<size_t>(found - planned), [&](const KernelCall& of) {
    reference::check_call(of);
    return found->plan(of);
  });
}

// What is used of what a build, or a processor, may lack.
std::vector<std::string> features() {
  std::vector<std::string> all;
  if (const std::string library = cpu::plan_library(); !library.empty()) all.push_back(library);
  return all;
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend() : HostBackend("cpu", features()) {}

  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return plan(plans_, call);
  }

  std::vector<KernelVariant> kernel_variants() const override {
    std::vector<KernelVariant> all = reference::kernel_variants();
    const std::string library = cpu::plan_library();
    for (KernelVariant& v : all)
      if (loops_.has(v.kernel))
        v.variant = fmt::format("vector {}", loops_.level());
      else if (!library.empty() && std::ranges::count(planned, v.kernel, &Planned::kernel) > 0)
        v.variant = library;
    return all;
  }

  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(limits, []() -> Prepare {
      return [plans = std::make_shared<Plans>()](const KernelCall& call) {
        return plan(*plans, call);
      };
    });
  }

 private:
  void execute(const KernelCall& call, std::span<std::byte* const> memory,
               std::byte* workspace) override {
    const auto own = call.preparation ? nullptr : plan(plans_, call);
    const auto* given = static_cast<const cpu::Plan*>(call.preparation);
    const cpu::Plan* plan = given ? given : own.get();
    if (!plan) {
      if (!run_loop(call, memory)) reference::run_kernel(call, memory);
      return;
    }
    check<ValueError>(call.workspace.size >= plan->workspace_bytes, call.kernel,
                      "the workspace must have {} bytes, got {}", plan->workspace_bytes,
                      call.workspace.size);
    plan->run(call, {memory, workspace});
  }

  bool run_loop(const KernelCall& call, std::span<std::byte* const> memory) const {
    if (!loops_.has(call.kernel)) return false;
    reference::check_call(call);
    return loops_.run(call, memory);
  }

  mutable Plans plans_;
  cpu::Loops loops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace rw
