#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels.h"

namespace rw::cpu {

using namespace kernels;

namespace {

// Rows [begin, end) of each chunk, the last one may be short. P has rows and chunk_rows.
template <class P, class Body>
void for_each_chunk(const P& p, const Body& body) {
  for (uint64_t begin = 0, chunk = 0; begin < p.rows; begin += p.chunk_rows, ++chunk)
    body(chunk, begin, std::min<uint64_t>(p.rows, begin + p.chunk_rows));
}

double inverse_deviation(const Elements& var, uint64_t channel, float eps) {
  return 1.0 / std::sqrt(double{var.get(channel)} + eps);
}

}  // namespace

void batch_norm_stats(const Call& call) {
  const auto p = call.params<BatchNormStatsParams>();
  const Elements x = call.in(0);
  Elements partial = call.out(1);
  for_each_chunk(p, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
    std::vector<double> mean(p.channels), deviations(p.channels);
    for (uint64_t row = begin; row < end; ++row)
      for (uint64_t c = 0; c < p.channels; ++c) mean[c] += x.get(row * p.channels + c);
    for (double& m : mean) m /= static_cast<double>(end - begin);
    for (uint64_t row = begin; row < end; ++row)
      for (uint64_t c = 0; c < p.channels; ++c) {
        const double d = x.get(row * p.channels + c) - mean[c];
        deviations[c] += d * d;
      }
    for (uint64_t c = 0; c < p.channels; ++c) {
      partial.set(chunk * 2 * p.channels + c, static_cast<Real>(mean[c]));
      partial.set((chunk * 2 + 1) * p.channels + c, static_cast<Real>(deviations[c]));
    }
  });
}

void batch_norm_combine(const Call& call) {
  const auto p = call.params<BatchNormCombineParams>();
  const Elements partial = call.in(0);
  Elements mean = call.out(1), var = call.out(2);
  for (uint64_t c = 0; c < p.channels; ++c) {
    double count = 0, total_mean = 0, deviations = 0;
    for_each_chunk(p, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
      if (chunk % p.run == 0) count = total_mean = deviations = 0;
      const double n = static_cast<double>(end - begin);
      const uint64_t at = chunk * p.chunk_step + c;
      const double delta = partial.get(at) - total_mean;
      deviations += partial.get(at + p.deviations_at) + delta * delta * count * n / (count + n);
      total_mean += delta * n / (count + n);
      count += n;
      const uint64_t to = chunk / p.run * p.channels + c;
      mean.set(to, static_cast<Real>(total_mean));
      var.set(to, static_cast<Real>(p.run < p.chunks ? deviations : deviations / count));
    });
  }
}

void batch_norm(const Call& call) {
  const auto p = call.params<BatchNormParams>();
  const Elements x = call.in(0), mean = call.in(1), var = call.in(2);
  const Elements weight = call.in(3), bias = call.in(4);
  Elements y = call.out(5);
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t c = i % p.channels;
    const double xhat = (x.get(i) - double{mean.get(c)}) * inverse_deviation(var, c, p.eps);
    y.set(i, static_cast<Real>(xhat * weight.get(c) + bias.get(c)));
  }
}

void batch_norm_grad_stats(const Call& call) {
  const auto p = call.params<BatchNormGradStatsParams>();
  const Elements x = call.in(0), dy = call.in(1), mean = call.in(2), var = call.in(3);
  Elements partial = call.out(4);
  for_each_chunk(p, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
    std::vector<double> sum_dy_xhat(p.channels), sum_dy(p.channels);
    for (uint64_t row = begin; row < end; ++row)
      for (uint64_t c = 0; c < p.channels; ++c) {
        const uint64_t at = row * p.channels + c;
        sum_dy_xhat[c] += dy.get(at) * (x.get(at) - double{mean.get(c)});
        sum_dy[c] += dy.get(at);
      }
    for (uint64_t c = 0; c < p.channels; ++c) {
      const double scaled = sum_dy_xhat[c] * inverse_deviation(var, c, p.eps);
      partial.set(chunk * 2 * p.channels + c, static_cast<Real>(scaled));
      partial.set((chunk * 2 + 1) * p.channels + c, static_cast<Real>(sum_dy[c]));
    }
  });
}

void batch_norm_grad(const Call& call) {
  const auto p = call.params<BatchNormGradParams>();
  const Elements x = call.in(0), dy = call.in(1), mean = call.in(2), var = call.in(3);
  const Elements weight = call.in(4), sums = call.in(5);
  Elements dx = call.out(6);
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t c = i % p.channels;
    const double inverse = inverse_deviation(var, c, p.eps);
    double centred = dy.get(i);
    if (p.train != 0) {
      const double xhat = (x.get(i) - double{mean.get(c)}) * inverse;
      centred -= (sums.get(p.channels + c) + xhat * sums.get(c)) / p.rows;
    }
    dx.set(i, static_cast<Real>(weight.get(c) * inverse * centred));
  }
}

}  // namespace rw::cpu
