#include "backends/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "backends/call_cache.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/prepared_call.h"
#include "backends/cpu/stack.h"
#include "backends/dry/dry_backend.h"
#include "backends/reference/host_backend.h"
#include "backends/reference/run_kernel.h"
#include "core/backend/features.h"
#include "core/base/error.h"

namespace rw {

namespace {

using PreparedCalls = CallCache<const cpu::PreparedCall>;

struct Preparer {
  std::string_view kernel;
  std::shared_ptr<const cpu::PreparedCall> (*prepare)(const KernelCall& call);
};
constexpr Preparer preparers[] = {{"matmul", cpu::prepare_matmul},
                                  {"conv2d", cpu::prepare_convolution},
                                  {"conv2d_dgrad", cpu::prepare_convolution},
                                  {"conv2d_wgrad", cpu::prepare_convolution}};

// Returns how the calls of a kernel are prepared, or null if they are not.
const Preparer* preparer_of(std::string_view kernel) {
  const auto* found = std::ranges::find(preparers, kernel, &Preparer::kernel);
  return found == std::end(preparers) ? nullptr : found;
}

// Returns null if the call has no fast form.
std::shared_ptr<const cpu::PreparedCall> prepared(PreparedCalls& calls, const Preparer& how,
                                                  const KernelCall& call) {
  return calls.get(call, static_cast<size_t>(&how - preparers), [&](const KernelCall& of) {
    reference::check_call(reference::find_kernel(of.kernel), of);
    return how.prepare(of);
  });
}

// Runs calls that are not prepared in a way of their own: by the kernel's vector loop, if there is
// one that has a form of the call, else by the loop of the reference.
class PreparedLoop final : public cpu::PreparedCall {
 public:
  PreparedLoop(std::string_view kernel, const cpu::Loops& loops)
      : kernel_(reference::find_kernel(kernel)), loop_(loops.find(kernel)) {}

  void run(const KernelCall& call, const cpu::Memory& memory) const override {
    reference::check_call(kernel_, call);
    if (!loop_ || !cpu::run(*loop_, call, memory.bindings))
      reference::run_loop(kernel_, call, memory.bindings);
  }

 private:
  const reference::Kernel& kernel_;
  const cpu::Loop* loop_;
};

// Returns the features in use that a build, or a processor, may lack.
std::vector<std::string> features() {
  std::vector<std::string> all;
  if (const std::string library = cpu::product_library(); !library.empty()) all.push_back(library);
  if (!cpu::levels().empty()) all.insert(all.end(), {block_products, joint_attention_grad});
  return all;
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(Addresses addresses = {})
      : HostBackend("cpu", features(), std::move(addresses)) {
    for (const std::string_view name : reference::kernel_names())
      kernels_[name] = {preparer_of(name), std::make_shared<const PreparedLoop>(name, loops_)};
  }

  std::shared_ptr<const Preparation> prepare(const KernelCall& call) const override {
    return prepared_of(call);
  }

  std::vector<KernelVariant> kernel_variants() const override {
    std::vector<KernelVariant> all = reference::kernel_variants();
    const std::string library = cpu::product_library();
    for (KernelVariant& v : all)
      if (!library.empty() && preparer_of(v.kernel))
        v.variant = library;
      else if (loops_.find(v.kernel))
        v.variant = fmt::format("vector {}", loops_.level());
    return all;
  }

  using Backend::dry;
  std::unique_ptr<Backend> dry(const DeviceInfo& limits) const override {
    return make_dry_backend(limits, cpu_prepare);
  }

 private:
  void execute(const KernelCall& call, std::span<std::byte* const> memory,
               std::byte* workspace) override {
    const Preparation* given = call.preparation.value_or(nullptr);
    const auto own = given ? nullptr : prepared_of(call);
    const auto* prepared = given ? static_cast<const cpu::PreparedCall*>(given) : own.get();
    check<ValueError>(call.workspace.size >= prepared->workspace_bytes, call.kernel,
                      "the workspace must have {} bytes, got {}", prepared->workspace_bytes,
                      call.workspace.size);
    const auto run = [&] { prepared->run(call, {memory, workspace}); };
    cpu::with_stack(std::ref(run));
  }

  std::shared_ptr<const cpu::PreparedCall> prepared_of(const KernelCall& call) const {
    const auto found = kernels_.find(call.kernel);
    check<ValueError>(found != kernels_.end(), call.kernel,
                      "the cpu backend has no kernel of this name");
    const auto& [how, loop] = found->second;
    std::shared_ptr<const cpu::PreparedCall> own = how ? prepared(calls_, *how, call) : nullptr;
    return own ? own : loop;
  }

  struct Kernel {
    const Preparer* how;
    std::shared_ptr<const PreparedLoop> loop;
  };

  cpu::Loops loops_;
  mutable PreparedCalls calls_;
  std::unordered_map<std::string_view, Kernel> kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

std::unique_ptr<Backend> make_cpu_backend(std::function<std::byte*(BufferRange)> addresses) {
  return std::make_unique<CpuBackend>(std::move(addresses));
}

Prepare cpu_prepare() {
  return [calls = std::make_shared<PreparedCalls>()](const KernelCall& call) {
    const Preparer* how = preparer_of(call.kernel);
    return how ? prepared(*calls, *how, call) : nullptr;
  };
}

}  // namespace rw
