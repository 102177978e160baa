#include "benchmarks/speed/cases.h"
#include "rewind/core/memory/default_device.h"
#include "rewind/core/ops/ops.h"

namespace rw::speed {

Tensor values(const Shape& shape, DType dtype, bool trained) {
  std::vector<float> host(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<float>(i * 2654435761u % 2048) / 1024 - 1;
  Tensor t = cast(tensor(host, shape), dtype);
  if (trained) t.set_requires_grad();
  return t;
}

Tensor indices(const Shape& shape, int32_t n) {
  std::vector<int32_t> host(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<int32_t>(i * 2654435761u % static_cast<uint32_t>(n));
  return tensor(host, shape);
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
    if (!seed.defined()) seed = values(y.shape(), y.dtype());
    y.backward(seed);
    for (Tensor& leaf : leaves) leaf.set_grad({});
    default_device()->end_step();
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto& part :
       {product_cases(), attention_cases(), bandwidth_cases(), optimizer_cases(), step_cases()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace rw::speed
