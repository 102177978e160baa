#include "backends/reference/random.h"

#include <cmath>
#include <numbers>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c[0], product1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

namespace {

// Returns the words of elements 4 * block to 4 * block + 3 of a tensor. P is DropoutParams or
// RandomParams.
template <class P>
std::array<uint32_t, 4> words(const P& p, uint64_t block) {
  const uint64_t counter = (uint64_t{p.counter_hi} << 32 | p.counter_lo) + block;
  return philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                {p.seed_lo, p.seed_hi});
}

// Maps a word to [0, 1) with 24 bits, so that every value is exact in f32.
float uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Box-Muller: returns element 0 or 1 of the pair that two words give.
double normal(uint32_t word0, uint32_t word1, uint32_t element) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(word0)));  // 1 - u: never log(0)
  const double angle = 2.0 * std::numbers::pi * uniform(word1);
  return radius * (element == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

void dropout(const Call& call) {
  const auto p = call.params<DropoutParams>();
  const Elements x = call.in(0);
  Elements y = call.out(1);
  std::array<uint32_t, 4> block{};
  for (uint64_t i = 0; i < p.n; ++i) {
    if (i % 4 == 0) block = words(p, i / 4);
    y.set(i, uniform(block[i % 4]) < p.keep ? x.get(i) / p.keep : 0.0f);
  }
}

void random(const Call& call) {
  const auto p = call.params<RandomParams>();
  Elements y = call.out(0);
  const bool is_normal = call.variant(0) == 1;
  std::array<uint32_t, 4> block{};
  for (uint64_t i = 0; i < p.n; ++i) {
    if (i % 4 == 0) block = words(p, i / 4);
    const uint32_t pair = i % 4 / 2 * 2;
    if (is_normal)
      y.set(i, static_cast<Real>(p.a + p.b * normal(block[pair], block[pair + 1], i % 2)));
    else
      y.set(i, p.a + (p.b - p.a) * uniform(block[i % 4]));
  }
}

}  // namespace rw::reference
