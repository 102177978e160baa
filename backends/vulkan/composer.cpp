#include "backends/vulkan/composer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "backends/dry/dry_backend.h"
#include "backends/vulkan/matrix/matrix.h"
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

struct Composed {
  std::string_view kernel;
  void (*add)(Passes& passes, const Caps& caps, const KernelCall& call);
};
constexpr Composed composed[] = {{"matmul", add_product},
                                 {"conv2d", add_product},
                                 {"conv2d_dgrad", add_product},
                                 {"conv2d_wgrad", add_product},
                                 {"copy", add_copy_call},
                                 {"reduce", add_reduce},
                                 {"softmax", add_rows},
                                 {"softmax_grad", add_rows},
                                 {"layer_norm", add_rows},
                                 {"layer_norm_grad", add_rows},
                                 {"layer_norm_grad_stats", add_layer_norm_grad_stats},
                                 {"batch_norm_stats", add_batch_norm_stats},
                                 {"batch_norm_grad_stats", add_batch_norm_grad_stats},
                                 {"attention", add_attention},
                                 {"attention_dq", add_attention},
                                 {"attention_dkv", add_attention},
                                 {"attention_dmask", add_attention}};

constexpr size_t most_kept = 4096;

void run_passes(const KernelCall& call, const Passes& passes, Dispatcher& dispatcher) {
  check<ValueError>(call.workspace.size >= passes.workspace_bytes, call.kernel,
                    "the workspace must have {} bytes, got {}", passes.workspace_bytes,
                    call.workspace.size);
  for (const Pass& pass : passes.list()) {
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

}  // namespace

size_t Composer::KeyHash::operator()(const Key& key) const {
  uint64_t hash = 0;
  for (const uint64_t word : key) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

Composer::Key Composer::key_of(const KernelCall& call, size_t kernel) {
  check<ValueError>(call.params.size() <= 124 && call.variant.size() <= 2, call.kernel,
                    "must have at most 124 bytes of parameters and 2 constants, got {} and {}",
                    call.params.size(), call.variant.size());
  const Choice choice = forced_choice();
  Key key{kernel, 0, call.constant(0) | uint64_t{call.constant(1)} << 32,
          static_cast<uint64_t>(choice.family) | uint64_t{choice.size} << 32,
          static_cast<uint64_t>(choice.panels) | uint64_t{choice.parts} << 32};
  for (const Binding& b : call.bindings)
    key[1] = key[1] << 8 | (static_cast<uint64_t>(b.dtype) + 1);
  std::memcpy(&key[5], call.params.data(), call.params.size());
  return key;
}

std::shared_ptr<const Passes> Composer::passes(const KernelCall& call) const {
  const auto* found = std::ranges::find(composed, call.kernel, &Composed::kernel);
  if (found == std::end(composed)) return nullptr;
  const Key key = key_of(call, static_cast<size_t>(found - composed));
  if (const auto known = kept_.find(key); known != kept_.end()) return known->second;
  const auto made = std::make_shared<Passes>();
  found->add(*made, caps_, call);
  if (kept_.size() == most_kept) kept_.clear();
  return kept_.emplace(key, made).first->second;
}

void Composer::run(const KernelCall& call, Dispatcher& dispatcher) const {
  const auto own = call.preparation ? nullptr : passes(call);
  const auto* given = static_cast<const Passes*>(call.preparation);
  if (const Passes* passes = given ? given : own.get())
    run_passes(call, *passes, dispatcher);
  else
    dispatcher.dispatch(call);
}

std::unique_ptr<Backend> make_dry_backend(const Caps& caps, const DeviceInfo& limits,
                                          std::function<void(const KernelCall&)> listen) {
  const auto make_prepare = [caps]() -> Prepare {
    return [composer = std::make_shared<const Composer>(caps)](const KernelCall& call) {
      return composer->passes(call);
    };
  };
  return rw::make_dry_backend(limits, make_prepare, std::move(listen));
}

}  // namespace rw::vulkan
