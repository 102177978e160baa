#include "backends/vulkan/matrix/matrix.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "backends/vulkan/matrix/matrix_class.h"
#include "backends/vulkan/matrix/matrix_passes.h"
#include "backends/vulkan/matrix/product.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

// What is asked for by the environment, or was tuned.
Choice choice_for(const KernelCall& call, const Caps& caps) {
  const Choice forced = forced_choice();
  if (forced != Choice{} || caps.tuning.choices.empty()) return forced;
  const auto tuned = caps.tuning.choices.find(class_of(call));
  return tuned == caps.tuning.choices.end() ? Choice{} : tuned->second;
}

constexpr size_t most_kept = 4096;

// All that decides the passes of a call on one device; made for each, so without allocations.
fmt::basic_memory_buffer<char, 256> key_of(const KernelCall& call) {
  fmt::basic_memory_buffer<char, 256> key;
  const auto append = [&](std::span<const std::byte> bytes) {
    key.append(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  key.append(call.kernel);
  for (const Binding& b : call.bindings) key.push_back(static_cast<char>(b.dtype));
  const Choice choice = forced_choice();
  const std::array<uint32_t, 4> forced{static_cast<uint32_t>(choice.family), choice.size,
                                       static_cast<uint32_t>(choice.panels), choice.parts};
  append(call.params);
  append(std::as_bytes(std::span(forced)));
  return key;
}

}  // namespace

bool MatrixPasses::handles(std::string_view kernel) {
  return is_product(kernel);
}

std::shared_ptr<const Passes> MatrixPasses::passes(const KernelCall& call) const {
  const auto text = key_of(call);
  const std::string_view key(text.data(), text.size());
  const std::lock_guard lock(mutex_);
  if (const auto known = kept_.find(key); known != kept_.end()) return known->second;
  log_product(call);
  auto made = compose(call, caps_, choice_for(call, caps_));
  if (kept_.size() == most_kept) kept_.clear();
  return kept_.emplace(std::string(key), std::move(made)).first->second;
}

std::shared_ptr<const Passes> compose(const KernelCall& call, const Caps& caps,
                                      const Choice& choice) {
  const auto operand = [&](int i) { return Operand{i, call.bindings[i].dtype, 0, 0}; };
  const auto made = std::make_shared<Passes>();
  if (call.kernel == "matmul")
    add_matmul(*made, caps, choice, params_of<kernels::MatmulParams>(call), operand(0), operand(1),
               operand(2));
  else
    add_conv(*made, caps, choice, call.kernel, params_of<kernels::Conv2dParams>(call), operand(0),
             operand(1), operand(2));
  return made;
}

std::shared_ptr<const Preparation> MatrixPasses::prepare(const KernelCall& call) const {
  return handles(call.kernel) ? passes(call) : nullptr;
}

void run_passes(const KernelCall& call, const Passes& passes, Dispatcher& dispatcher) {
  check<ValueError>(call.workspace.size >= passes.workspace_bytes, call.kernel,
                    "the workspace must have {} bytes, got {}", passes.workspace_bytes,
                    call.workspace.size);
  for (const Pass& pass : passes.list()) {
    std::array<Binding, 3> bindings;
    for (size_t i = 0; i < pass.operand_count; ++i) {
      const Operand& o = pass.operands[i];
      const BufferRange range =
          o.binding == Operand::workspace
              ? BufferRange{call.workspace.block, call.workspace.offset + o.offset, o.size}
              : call.bindings[o.binding].range;
      bindings[i] = {range, o.dtype, pass.access[i]};
    }
    dispatcher.dispatch({.kernel = pass.kernel,
                         .bindings = {bindings.data(), pass.operand_count},
                         .params = {pass.params.data(), pass.params_size},
                         .threads = {pass.threads, 1, 1},
                         .variant = pass.variant,
                         .flops = pass.flops});
  }
}

void run_modules(const KernelCall& call, const MatrixPasses& matrix, Dispatcher& dispatcher) {
  if (call.kernel.ends_with("_cooperative")) {
    const std::string module = cooperative_module(call.kernel, call.bindings[0].dtype);
    KernelCall named = call;
    named.kernel = module;
    return dispatcher.dispatch(named);
  }
  if (!MatrixPasses::handles(call.kernel))
    dispatcher.dispatch(call);
  else if (call.preparation)
    run_passes(call, static_cast<const Passes&>(*call.preparation), dispatcher);
  else
    run_passes(call, *matrix.passes(call), dispatcher);
}

}  // namespace rw::vulkan
