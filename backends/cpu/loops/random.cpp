// Random numbers that depend only on a counter.
#include "backends/cpu/loops/functions.h"
#include "backends/cpu/loops/philox.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The words of elements 4 * first to 4 * first + block - 1 of a tensor: word k of all counters
// first, then the next word. P is DropoutParams or RandomParams.
struct BlockWords {
  alignas(64) uint32_t at[4][block / 4];
};
template <class P>
void make_words(const P& p, uint64_t first, BlockWords& words) {
  const uint64_t counter = (uint64_t{p.counter_hi} << 32 | p.counter_lo) + first;
  const uint32_t seed_lo = p.seed_lo, seed_hi = p.seed_hi;
  REWIND_VECTORIZE
  for (int64_t i = 0; i < block / 4; ++i) {
    const uint64_t number = counter + static_cast<uint64_t>(i);
    const Words made =
        philox({{static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0}},
               seed_lo, seed_hi);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) words.at[k][i] = made.word[k];
  }
}

// Fills a block with uniform numbers, in the order of elements.
template <class P>
void uniform_block(const P& p, int64_t at, float* u) {
  BlockWords words;
  make_words(p, static_cast<uint64_t>(at / 4), words);
  for (int64_t i = 0; i < block / 4; ++i)
    for (int k = 0; k < 4; ++k) u[4 * i + k] = uniform(words.at[k][i]);
}

// Box-Muller: turns each pair of uniform numbers into a pair of normal ones.
void normal_block(float* u) {
  for (int64_t i = 0; i < block; i += 2) {
    const float radius = sqrt(-2.0f * log(1.0f - u[i]));  // 1 - u: never log(0)
    const float angle = 6.2831853f * u[i + 1];
    const float x = radius * cos(angle), y = radius * sin(angle);
    u[i] = x;
    u[i + 1] = y;
  }
}

}  // namespace

bool dropout(const LoopCall& call) {
  const auto& p = params<DropoutParams>(call);
  const Operand x = operand(call, 0), y = result(call, 1, p.n);
  each_block(p.n, 4 * (x.width + y.width), [&](int64_t at, int64_t count) {
    Block u, in, out;
    uniform_block(p, at, u.at);
    const float keep = p.keep;
    const float* from = read(x, at, count, in.at);
    float* to = place(y, at, out.at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < count; ++i) {
      const float kept = from[i] / keep;
      to[i] = u.at[i] < keep ? kept : 0.0f;
    }
    write(y, at, count, to);
  });
  return true;
}

bool random(const LoopCall& call) {
  const auto& p = params<RandomParams>(call);
  const Operand y = operand(call, 0);
  const bool is_normal = call.constant[0] == 1;
  const float first = p.a, factor = is_normal ? p.b : p.b - p.a;
  each_block(p.n, 8 * y.width, [&](int64_t at, int64_t count) {
    Block u;
    uniform_block(p, at, u.at);
    if (is_normal) normal_block(u.at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < count; ++i) u.at[i] = first + factor * u.at[i];
    write(y, at, count, u.at);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
