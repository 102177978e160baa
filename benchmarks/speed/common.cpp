#include "benchmarks/speed/cases.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"

namespace rw::speed {

std::vector<Case> step_cases() {
  std::vector<Case> cases;
  for (StandardStep& step : standard_steps())
    cases.push_back({"step/" + step.name, 0, 0, std::move(step.make), step.is_large});
  return cases;
}

Work forward(std::function<Tensor()> body) {
  return [body = std::move(body)] {
    const NoGrad off;
    body();
    default_device()->end_step();
  };
}

Work forward_and_backward(std::function<Tensor()> body, std::vector<Tensor> leaves) {
  return [body = std::move(body), leaves = std::move(leaves), seed = Tensor()]() mutable {
    const Tensor y = body();
    if (!seed.defined()) seed = standard_values(y.shape(), y.dtype());
    y.backward(seed);
    for (Tensor& leaf : leaves) leaf.set_grad({});
    default_device()->end_step();
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& part : {product_cases(), attention_cases(), bandwidth_cases(), optimizer_cases(),
                           decoder_cases(), step_cases()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace rw::speed
