#include <cmath>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

double inverse_deviation(const Elements& var, uint64_t channel, float eps) {
  return 1.0 / std::sqrt(double{var.get(channel)} / NORM_SCALE / NORM_SCALE + eps);
}

// The mean of a channel, of `mean` [channels], or [2, channels] with what its rounding leaves.
template <class P>
double mean_of(const P& p, const Elements& mean, uint64_t channel) {
  const double rest = p.has_rest != 0 ? mean.get(p.channels + channel) : 0;
  return mean.get(channel) + rest;
}

}  // namespace

void batch_norm_stats(const Call& call) {
  const auto p = call.params<BatchNormParams>();
  const Elements x = call.in(0);
  Elements mean = call.out(1), var = call.out(2), both = call.out(3);
  for (uint64_t c = 0; c < p.channels; ++c) {
    double total = 0, deviations = 0;
    for (uint64_t row = 0; row < p.rows; ++row) total += x.get(row * p.channels + c);
    total /= p.rows;
    for (uint64_t row = 0; row < p.rows; ++row) {
      const double d = NORM_SCALE * (x.get(row * p.channels + c) - total);
      deviations += d * d;
    }
    mean.set(c, static_cast<Real>(total));
    both.set(c, static_cast<Real>(total));
    const double rest = total - static_cast<Real>(total);
    both.set(p.channels + c, static_cast<Real>(std::isfinite(rest) ? rest : 0));
    var.set(c, static_cast<Real>(deviations / p.rows));
  }
}

void batch_norm(const Call& call) {
  const auto p = call.params<BatchNormParams>();
  const Elements x = call.in(0), mean = call.in(1), var = call.in(2);
  const Elements weight = call.in(3), bias = call.in(4);
  Elements y = call.out(5);
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t c = i % p.channels;
    const double xhat = (x.get(i) - mean_of(p, mean, c)) * inverse_deviation(var, c, p.eps);
    y.set(i, static_cast<Real>(xhat * weight.get(c) + bias.get(c)));
  }
}

void batch_norm_grad_stats(const Call& call) {
  const auto p = call.params<BatchNormParams>();
  const Elements x = call.in(0), dy = call.in(1), mean = call.in(2), var = call.in(3);
  Elements sums = call.out(4);
  for (uint64_t c = 0; c < p.channels; ++c) {
    double products = 0, total = 0;
    for (uint64_t row = 0; row < p.rows; ++row) {
      const uint64_t at = row * p.channels + c;
      products += dy.get(at) * (x.get(at) - mean_of(p, mean, c));
      total += dy.get(at);
    }
    sums.set(c, static_cast<Real>(products * inverse_deviation(var, c, p.eps)));
    sums.set(p.channels + c, static_cast<Real>(total));
  }
}

void batch_norm_grad(const Call& call) {
  const auto p = call.params<BatchNormParams>();
  const Elements x = call.in(0), dy = call.in(1), mean = call.in(2), var = call.in(3);
  const Elements weight = call.in(4), sums = call.in(5);
  Elements dx = call.out(6);
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t c = i % p.channels;
    const double inverse = inverse_deviation(var, c, p.eps);
    double centred = dy.get(i);
    if (p.train != 0) {
      const double xhat = (x.get(i) - mean_of(p, mean, c)) * inverse;
      centred -= (sums.get(p.channels + c) + xhat * sums.get(c)) / p.rows;
    }
    dx.set(i, static_cast<Real>(weight.get(c) * inverse * centred));
  }
}

}  // namespace rw::reference
