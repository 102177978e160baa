#include "backends/vulkan/composer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "backends/cpu/cpu_backend.h"
#include "backends/dry/dry_backend.h"
#include "backends/vulkan/matrix/matrix.h"
#include "backends/vulkan/matrix/product.h"
#include "backends/vulkan/passes/attention.h"
#include "backends/vulkan/passes/copy.h"
#include "backends/vulkan/passes/reductions.h"
#include "backends/vulkan/passes/rows.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

void add_copy_call(Passes& passes, const Caps& caps, const KernelCall& call) {
  add_copy(passes, caps, call.params_as<kernels::CopyParams>(), operand(call, 0), operand(call, 1));
}

void add_chosen_product(Passes& passes, const Caps& caps, const KernelCall& call) {
  log_product(call);
  add_product(passes, caps, call, choice_for(call, caps));
}

struct Composed {
  std::string_view kernel;
  void (*add)(Passes& passes, const Caps& caps, const KernelCall& call);
};
constexpr Composed composed[] = {{"matmul", add_chosen_product},
                                 {"conv2d", add_chosen_product},
                                 {"conv2d_dgrad", add_chosen_product},
                                 {"conv2d_wgrad", add_chosen_product},
                                 {"copy", add_copy_call},
                                 {"reduce", add_reduce},
                                 {"argreduce", add_argreduce},
                                 {"softmax", add_softmax},
                                 {"softmax_grad", add_softmax},
                                 {"layer_norm", add_layer_norm},
                                 {"layer_norm_grad", add_layer_norm},
                                 {"layer_norm_grad_stats", add_layer_norm_grad_stats},
                                 {"batch_norm_stats", add_batch_norm_stats},
                                 {"batch_norm_grad_stats", add_batch_norm_grad_stats},
                                 {"attention", add_attention},
                                 {"attention_dq", add_attention},
                                 {"attention_dkv", add_attention},
                                 {"attention_dmask", add_attention}};

}  // namespace

std::shared_ptr<const Passes> Composer::passes(const KernelCall& call) const {
  const auto* found = std::ranges::find(composed, call.kernel, &Composed::kernel);
  if (found == std::end(composed)) return nullptr;
  const auto make = [&](const KernelCall& of) {
    const auto made = std::make_shared<Passes>();
    found->add(*made, caps_, of);
    return made;
  };
  const Choice choice = forced_choice();
  return kept_.get(call, static_cast<size_t>(found - composed), make,
                   {static_cast<uint64_t>(choice.family) | uint64_t{choice.size} << 32,
                    static_cast<uint64_t>(choice.panels) | uint64_t{choice.parts} << 32});
}

void Composer::run(const KernelCall& call, Dispatcher& dispatcher) const {
  const auto own = call.preparation ? nullptr : passes(call);
  const auto* passes = static_cast<const Passes*>(call.preparation.value_or(own.get()));
  if (!passes) return dispatcher.dispatch(call);
  check<ValueError>(call.workspace.size >= passes->workspace_bytes, call.kernel,
                    "the workspace must have {} bytes, got {}", passes->workspace_bytes,
                    call.workspace.size);
  for (const Pass& pass : passes->list()) {
    std::array<Binding, 8> bindings;
    for (size_t i = 0; i < pass.operand_count; ++i) {
      const Operand& o = pass.operands[i];
      const BufferRange range =
          o.binding == Operand::workspace
              ? BufferRange{call.workspace.block, call.workspace.offset + o.offset, o.size}
              : call.bindings[static_cast<size_t>(o.binding)].range;
      bindings[i] = {range, o.dtype, o.access};
    }
    dispatcher.dispatch({.kernel = pass.kernel,
                         .bindings = {bindings.data(), pass.operand_count},
                         .params = {pass.params.data(), pass.params_size},
                         .threads = pass.threads,
                         .variant = pass.variant,
                         .flops = pass.flops});
  }
}

std::unique_ptr<Backend> make_dry_backend(const Caps& caps, const DeviceInfo& limits,
                                          std::function<void(const KernelCall&)> listen) {
  const auto make_prepare = [caps]() -> Prepare {
    return [composer = std::make_shared<const Composer>(caps)](const KernelCall& call) {
      return composer->passes(call);
    };
  };
  return rw::make_dry_backend(limits, make_prepare, std::move(listen), cpu_prepare);
}

}  // namespace rw::vulkan
