#include "rewind/backends/vulkan/matrix.h"

#include "rewind/backends/vulkan/matrix_plan.h"
#include "rewind/core/base/error.h"

namespace rw::vulkan {

namespace {

template <class Params>
Params params_of(const KernelCall& call) {
  check<ValueError>(call.params.size() == sizeof(Params) && call.bindings.size() == 3, call.kernel,
                    "must have 3 bindings and {} bytes of parameters, got {} and {}",
                    sizeof(Params), call.bindings.size(), call.params.size());
  Params p;
  std::memcpy(&p, call.params.data(), sizeof(Params));
  return p;
}

Plan plan_call(const KernelCall& call, const Caps& caps) {
  const auto operand = [&](int i) { return Operand{i, call.bindings[i].dtype, 0, 0}; };
  Plan plan;
  if (call.kernel == "matmul") {
    const auto p = params_of<kernels::MatmulParams>(call);
    plan_matmul(plan, caps, p, operand(0), operand(1), operand(2));
  } else {
    const auto p = params_of<kernels::Conv2dParams>(call);
    plan_conv(plan, caps, call.kernel, p, operand(0), operand(1), operand(2));
  }
  return plan;
}

}  // namespace

bool MatrixPlanner::handles(std::string_view kernel) const {
  return kernel == "matmul" || kernel == "conv2d" || kernel == "conv2d_dgrad" ||
         kernel == "conv2d_wgrad";
}

uint64_t MatrixPlanner::workspace_bytes(const KernelCall& call) const {
  return plan_call(call, caps_).bytes();
}

void MatrixPlanner::run(const KernelCall& call, Dispatcher& dispatcher) const {
  const Plan plan = plan_call(call, caps_);
  check<ValueError>(call.workspace.size >= plan.bytes(), call.kernel,
                    "the workspace must have {} bytes, got {}", plan.bytes(), call.workspace.size);
  for (const Step& step : plan.steps()) {
    std::array<Binding, 3> bindings;
    for (size_t i = 0; i < step.operand_count; ++i) {
      const Operand& o = step.operands[i];
      const BufferRange range =
          o.binding == Operand::workspace
              ? BufferRange{call.workspace.block, call.workspace.offset + o.offset, o.size}
              : call.bindings[o.binding].range;
      bindings[i] = {range, o.dtype, step.access[i]};
    }
    dispatcher.dispatch({.kernel = step.kernel,
                         .bindings = {bindings.data(), step.operand_count},
                         .params = {step.params.data(), step.params_size},
                         .threads = {step.threads, 1, 1},
                         .variant = step.variant,
                         .flops = step.flops,
                         .workspace = {}});
  }
}

}  // namespace rw::vulkan
