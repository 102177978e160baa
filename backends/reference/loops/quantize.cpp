#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

double step_of(const Elements& x, uint64_t begin, uint64_t end) {
  double most = 0;
  for (uint64_t i = begin; i < end; ++i) {
    const double size = std::fabs(double{x.get(i)});
    if (!std::isfinite(size)) return std::numeric_limits<double>::quiet_NaN();
    most = std::max(most, size);
  }
  return std::max(most / QUANTIZE_LEVELS, double{QUANTIZE_LEAST});
}

int32_t encode(double x, double step) {
  if (std::isnan(step) || std::fabs(x) < double{std::numeric_limits<float>::min()})
    return QUANTIZE_ZERO;
  const auto k = static_cast<int32_t>(
      std::clamp(std::ceil(std::fabs(x) / step), 1.0, double{QUANTIZE_LEVELS}));
  return QUANTIZE_ZERO + (x < 0 ? -k : k);
}

double decode(int32_t code, double step) {
  const int32_t k = code - QUANTIZE_ZERO;
  if (k == 0) return 0 * step;
  return (k + (k > 0 ? -0.5 : 0.5)) * step;
}

}  // namespace

void quantize_blocks(const Call& call) {
  const auto p = call.params<QuantizeBlocksParams>();
  const Elements x = call.in(0);
  Elements codes = call.out(1), steps = call.out(2);
  for (uint64_t begin = 0; begin < p.n; begin += QUANTIZE_BLOCK) {
    const uint64_t end = std::min<uint64_t>(p.n, begin + QUANTIZE_BLOCK);
    const Real step = static_cast<Real>(step_of(x, begin, end));
    steps.set(begin / QUANTIZE_BLOCK, step);
    for (uint64_t i = begin; i < end; ++i) codes.seti(i, encode(x.get(i), step));
  }
}

void dequantize_blocks(const Call& call) {
  const auto p = call.params<QuantizeBlocksParams>();
  Elements y = call.out(0);
  const Elements codes = call.in(1), steps = call.in(2);
  for (uint64_t i = 0; i < p.n; ++i)
    y.set(i, static_cast<Real>(decode(codes.geti(i), steps.get(i / QUANTIZE_BLOCK))));
}

}  // namespace rw::reference
