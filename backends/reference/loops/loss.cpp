#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

double log_sum_exp(const std::vector<double>& values) {
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (double v : values) top = std::max(top, v);
  for (double v : values) total += std::exp(v - top);
  return top + std::log(total);
}

}  // namespace

void cross_entropy(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements logits = call.in(0), target = call.in(1);
  Elements loss = call.out(2), lse = call.out(3);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<double> x = logits.to_doubles(row * p.cols, p.cols);
    const double row_lse = log_sum_exp(x);
    lse.set(row, static_cast<Real>(row_lse));

    const int32_t t = target.geti(row);
    if (t == p.ignore_index) {
      loss.set(row, 0);
    } else if (t < 0 || static_cast<uint32_t>(t) >= p.cols) {
      loss.set(row, nan);
    } else {
      const double s = p.smoothing;
      double mean = 0;
      for (double v : x) mean += v / p.cols;
      // The term is left out for s = 0, since 0 * (lse - mean) is NaN if a logit is -inf.
      const double smooth_part = s == 0 ? 0 : s * (row_lse - mean);
      loss.set(row, static_cast<Real>((1 - s) * (row_lse - x[t]) + smooth_part));
    }
  }
}

void cross_entropy_grad(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements logits = call.in(0), target = call.in(1), lse = call.in(2), dloss = call.in(3);
  Elements dlogits = call.out(4);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const int32_t t = target.geti(row);
    const bool ignored = t == p.ignore_index;
    const bool valid = t >= 0 && static_cast<uint32_t>(t) < p.cols;
    for (uint64_t i = 0; i < p.cols; ++i) {
      const uint64_t at = row * p.cols + i;
      const double softmax = std::exp(double{logits.get(at)} - lse.get(row));
      const double onehot = static_cast<int64_t>(i) == t ? 1 : 0;
      const double s = p.smoothing;
      const double grad = dloss.get(row) * (softmax - (1 - s) * onehot - s / p.cols);
      dlogits.set(at, ignored ? 0.0f : valid ? static_cast<Real>(grad) : nan);
    }
  }
}

}  // namespace rw::reference
