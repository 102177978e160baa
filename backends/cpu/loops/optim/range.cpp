// The range of values: how many belong to each class, and the extremes (shaders/params/optim.h).
#include "backends/cpu/loops/functions.h"
#include "backends/cpu/loops/views.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

struct Counts {
  uint32_t at[RANGE_SIZE];
};

void count_block(const float* x, int64_t count, uint32_t least_normal, Counts& counts) {
  uint32_t nans = 0, infinities = 0, zeros = 0, small = 0, largest = 0, lowest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(x[i]) & 0x7fffffffu;
    nans += bits > INFINITY_BITS ? 1u : 0u;
    infinities += bits == INFINITY_BITS ? 1u : 0u;
    zeros += bits == 0 ? 1u : 0u;
    small += bits < least_normal ? 1u : 0u;  // zero counts, too
    const uint32_t high = bits < INFINITY_BITS ? bits : 0u;
    const uint32_t low = high != 0 ? INFINITY_BITS - high : 0u;
    largest = high > largest ? high : largest;
    lowest = low > lowest ? low : lowest;
  }
  const uint32_t denormals = small - zeros;
  counts.at[RANGE_NANS] += nans;
  counts.at[RANGE_INFINITIES] += infinities;
  counts.at[RANGE_ZEROS] += zeros;
  counts.at[RANGE_DENORMALS] += denormals;
  counts.at[RANGE_NORMALS] += static_cast<uint32_t>(count) - nans - infinities - zeros - denormals;
  if (largest > counts.at[RANGE_LARGEST]) counts.at[RANGE_LARGEST] = largest;
  if (lowest > counts.at[RANGE_LEAST]) counts.at[RANGE_LEAST] = lowest;
}

}  // namespace

bool value_range(const LoopCall& call) {
  const auto& p = params<ValueRangeParams>(call);
  const Operand x = operand(call, 0);
  const View from = call.constant[0] == 1 ? dense(x) : view(x, p.rank, p.shape, p.stride);
  uint32_t* row = operand(call, 1).as<uint32_t>();
  const float scale = p.scaled == 1 ? operand(call, 2).as<float>()[STATE_SCALE] : 1.0f;
  const uint32_t least_normal = bits_of(p.least_normal * scale);
  constexpr int64_t most = 256;
  const int64_t n = p.n, piece = divide_up(divide_up(n, most), 16 * block) * 16 * block;
  const int64_t pieces = n > 0 ? divide_up(n, piece) : 0;
  Counts parts[most];
  parallel_for(pieces, n * x.width, [&](int64_t i) {
    Counts counts{};
    for (int64_t at = i * piece; at < least(n, (i + 1) * piece); at += block) {
      Block in;
      const int64_t count = least(block, n - at);
      count_block(read(from, at, count, in.at), count, least_normal, counts);
    }
    parts[i] = counts;
  });
  for (int64_t i = 0; i < pieces; ++i) {
    const uint32_t* counts = parts[i].at;
    for (int k = 0; k < RANGE_LARGEST; ++k) row[k] += counts[k];
    for (const int k : {RANGE_LARGEST, RANGE_LEAST})
      row[k] = counts[k] > row[k] ? counts[k] : row[k];
  }
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
