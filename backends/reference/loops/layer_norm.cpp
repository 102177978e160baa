#include <cmath>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

void layer_norm(const Call& call) {
  const auto p = call.params<LayerNormParams>();
  const bool rms = call.variant(0) != 0;
  const Elements x = call.in(0), weight = call.in(1), bias = call.in(2);
  Elements y = call.out(3), stats = call.out(4);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<double> values = x.to_doubles(row * p.cols, p.cols);
    double mean = 0, variance = 0;
    if (!rms)
      for (const double v : values) mean += v / p.cols;
    for (const double v : values) variance += (v - mean) * (v - mean) / p.cols;
    const double rstd = 1 / std::sqrt(variance + p.eps);
    for (uint64_t c = 0; c < p.cols; ++c) {
      const double shift = rms ? 0 : bias.get(c);
      y.set(row * p.cols + c, static_cast<Real>((values[c] - mean) * rstd * weight.get(c) + shift));
    }
    stats.set(2 * row, static_cast<Real>(rms ? 0 : mean - values[0]));
    stats.set(2 * row + 1, static_cast<Real>(rstd));
  }
}

void layer_norm_grad(const Call& call) {
  const auto p = call.params<LayerNormParams>();
  const bool rms = call.variant(0) != 0;
  const Elements x = call.in(0), dy = call.in(1), weight = call.in(2), stats = call.in(3);
  Elements dx = call.out(4);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const double first = rms ? 0 : x.get(row * p.cols);
    const double mean = first + stats.get(2 * row), rstd = stats.get(2 * row + 1);
    std::vector<double> g = dy.to_doubles(row * p.cols, p.cols);
    std::vector<double> xhat = x.to_doubles(row * p.cols, p.cols);
    double mean_g = 0, mean_product = 0;
    for (uint64_t c = 0; c < p.cols; ++c) {
      g[c] *= weight.get(c);
      xhat[c] = (xhat[c] - mean) * rstd;
      if (!rms) mean_g += g[c] / p.cols;
      mean_product += g[c] * xhat[c] / p.cols;
    }
    for (uint64_t c = 0; c < p.cols; ++c)
      dx.set(row * p.cols + c, static_cast<Real>(rstd * (g[c] - mean_g - xhat[c] * mean_product)));
  }
}

void layer_norm_grad_stats(const Call& call) {
  const auto p = call.params<LayerNormParams>();
  const bool rms = call.variant(0) != 0;
  const Elements x = call.in(0), dy = call.in(1), stats = call.in(2);
  Elements sums = call.out(3);
  for (uint64_t c = 0; c < p.cols; ++c) {
    double products = 0, total = 0;
    for (uint64_t row = 0; row < p.rows; ++row) {
      const double g = dy.get(row * p.cols + c), first = rms ? 0 : x.get(row * p.cols);
      const double deviation = x.get(row * p.cols + c) - first - stats.get(2 * row);
      products += g * deviation * stats.get(2 * row + 1);
      total += g;
    }
    sums.set(c, static_cast<Real>(products));
    sums.set(p.cols + c, static_cast<Real>(total));
  }
}

}  // namespace rw::reference
