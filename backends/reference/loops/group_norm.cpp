#include <algorithm>
#include <cmath>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Calls body(sample, chunk, begin, end) for each sample's rows in chunks, the last of which may be
// short.
template <class P, class Body>
void for_each_chunk(const P& p, const Body& body) {
  for (uint64_t sample = 0; sample < p.samples; ++sample)
    for (uint64_t begin = 0, chunk = 0; begin < p.rows; begin += p.chunk_rows, ++chunk)
      body(sample, chunk, begin, std::min<uint64_t>(p.rows, begin + p.chunk_rows));
}

// The mean and 1 / deviation of a group, for element i of [samples, rows, channels].
struct GroupMoments {
  double mean, rstd;
};

template <class P>
uint64_t group_of(const P& p, uint64_t i) {
  const uint64_t sample = i / p.channels / p.rows;
  return sample * (p.channels / p.width) + i % p.channels / p.width;
}

// The first element of the group to which element i belongs.
template <class P>
double first_of(const P& p, const Elements& x, uint64_t i) {
  return x.get(i / p.channels / p.rows * p.rows * p.channels + i % p.channels / p.width * p.width);
}

template <class P>
GroupMoments moments_at(const P& p, const Elements& x, const Elements& stats, uint64_t i) {
  const uint64_t group = group_of(p, i);
  return {first_of(p, x, i) + stats.get(2 * group), stats.get(2 * group + 1)};
}

}  // namespace

void group_norm_stats(const Call& call) {
  const auto p = call.params<GroupNormParams>();
  const Elements x = call.in(0);
  Elements moments = call.out(1);
  const uint64_t across = p.width / p.merged;
  const uint64_t blocks = (p.rows + p.chunk_rows - 1) / p.chunk_rows * across;
  for_each_chunk(p, [&](uint64_t sample, uint64_t chunk, uint64_t begin, uint64_t end) {
    const auto count = static_cast<double>((end - begin) * p.merged);
    for (uint64_t c = 0; c < p.channels; c += p.merged) {
      const double first = first_of(p, x, sample * p.rows * p.channels + c);
      const auto for_each = [&](const auto& body) {
        for (uint64_t row = begin; row < end; ++row)
          for (uint64_t k = 0; k < p.merged; ++k)
            body(NORM_SCALE * (x.get((sample * p.rows + row) * p.channels + c + k) - first));
      };
      double mean = 0, squares = 0;
      for_each([&](double v) { mean += v / count; });
      for_each([&](double v) { squares += (v - mean) * (v - mean); });
      const uint64_t group = sample * (p.channels / p.width) + c / p.width;
      const uint64_t block = group * blocks + chunk * across + c % p.width / p.merged;
      moments.set(3 * block, static_cast<Real>(count));
      moments.set(3 * block + 1, static_cast<Real>(mean));
      moments.set(3 * block + 2, static_cast<Real>(squares));
    }
  });
}

void group_norm_combine(const Call& call) {
  const auto p = call.params<GroupNormCombineParams>();
  const bool last = call.variant(0) != 0;
  const Elements moments = call.in(0);
  Elements combined = call.out(1);
  uint64_t run = 0;
  for (uint64_t group = 0; group < p.groups; ++group)
    for (uint64_t begin = 0; begin < p.blocks; begin += GROUP_NORM_BLOCKS, ++run) {
      const uint64_t end = std::min<uint64_t>(p.blocks, begin + GROUP_NORM_BLOCKS);
      double count = 0, mean = 0, squares = 0;
      for (uint64_t b = begin; b < end; ++b) {
        const uint64_t at = 3 * (group * p.blocks + b);
        const double more = moments.get(at), delta = moments.get(at + 1) - mean;
        squares += moments.get(at + 2) + delta * delta * count * more / (count + more);
        mean += delta * more / (count + more);
        count += more;
      }
      if (last) {
        const double variance = squares / count / NORM_SCALE / NORM_SCALE;
        combined.set(2 * run, static_cast<Real>(mean / NORM_SCALE));
        combined.set(2 * run + 1, static_cast<Real>(1 / std::sqrt(variance + p.eps)));
      } else {
        combined.set(3 * run, static_cast<Real>(count));
        combined.set(3 * run + 1, static_cast<Real>(mean));
        combined.set(3 * run + 2, static_cast<Real>(squares));
      }
    }
}

void group_norm(const Call& call) {
  const auto p = call.params<GroupNormParams>();
  const Elements x = call.in(0), stats = call.in(1), weight = call.in(2), bias = call.in(3);
  Elements y = call.out(4);
  for (uint64_t i = 0; i < uint64_t{p.samples} * p.rows * p.channels; ++i) {
    const auto [mean, rstd] = moments_at(p, x, stats, i);
    const uint64_t c = i % p.channels;
    y.set(i, static_cast<Real>((x.get(i) - mean) * rstd * weight.get(c) + bias.get(c)));
  }
}

void group_norm_grad_stats(const Call& call) {
  const auto p = call.params<GroupNormParams>();
  const Elements x = call.in(0), dy = call.in(1), stats = call.in(2);
  Elements partial = call.out(3);
  const uint64_t chunks = (p.rows + p.chunk_rows - 1) / p.chunk_rows;
  for_each_chunk(p, [&](uint64_t sample, uint64_t chunk, uint64_t begin, uint64_t end) {
    for (uint64_t c = 0; c < p.channels; ++c) {
      double products = 0, total = 0;
      for (uint64_t row = begin; row < end; ++row) {
        const uint64_t i = (sample * p.rows + row) * p.channels + c;
        const auto [mean, rstd] = moments_at(p, x, stats, i);
        products += dy.get(i) * (x.get(i) - mean) * rstd;
        total += dy.get(i);
      }
      const uint64_t at = (sample * chunks + chunk) * 2 * p.channels + c;
      partial.set(at, static_cast<Real>(products));
      partial.set(at + p.channels, static_cast<Real>(total));
    }
  });
}

void group_norm_grad(const Call& call) {
  const auto p = call.params<GroupNormParams>();
  const Elements x = call.in(0), dy = call.in(1), stats = call.in(2), weight = call.in(3);
  const Elements sums = call.in(4);
  Elements dx = call.out(5);
  const uint64_t groups = p.channels / p.width;
  const double size = static_cast<double>(p.rows) * p.width;
  for (uint64_t i = 0; i < uint64_t{p.samples} * p.rows * p.channels; ++i) {
    const auto [mean, rstd] = moments_at(p, x, stats, i);
    const uint64_t at = group_of(p, i) / groups * 2 * groups + group_of(p, i) % groups;
    const double g = double{weight.get(i % p.channels)} * dy.get(i);
    const double xhat = (x.get(i) - mean) * rstd;
    dx.set(i, static_cast<Real>(rstd * (g - (sums.get(at + groups) + xhat * sums.get(at)) / size)));
  }
}

}  // namespace rw::reference
