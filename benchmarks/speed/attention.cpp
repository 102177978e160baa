#include <fmt/format.h>

#include "benchmarks/speed/cases.h"
#include "ops/ops.h"

namespace rw::speed {

// 4096 tokens in 4 heads of 64, in sequences of several lengths.
std::vector<Case> attention_cases() {
  constexpr int64_t tokens = 4096, heads = 4, width = 64;
  std::vector<Case> cases;
  for (const int64_t length : {128, 512, 1024, 2048, 4096})
    for (const bool trains : {false, true}) {
      const double flops = 4.0 * static_cast<double>(tokens * length * heads * width);
      cases.push_back({fmt::format("attention/{}x{}x{}x{}-{}", tokens / length, heads, length,
                                   width, trains ? "both" : "forward"),
                       trains ? 3.5 * flops : flops, 0, [=](DType dtype) {
                         const Shape shape{tokens / length, heads, length, width};
                         const Tensor q = standard_values(shape, dtype, trains);
                         const Tensor k = standard_values(shape, dtype, trains);
                         const Tensor v = standard_values(shape, dtype, trains);
                         const auto body = [=] { return attention(q, k, v); };
                         return trains ? forward_and_backward(body, {q, k, v}) : forward(body);
                       }});
    }
  return cases;
}

}  // namespace rw::speed
