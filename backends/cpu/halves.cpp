#include "backends/cpu/halves.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/work.h"

namespace rw::cpu {

namespace {

constexpr int64_t piece = 1 << 14;

template <class Body>
void in_pieces(int64_t count, const Body& body) {
  parallel_for((count + piece - 1) / piece, [&](int64_t i) {
    for (int64_t k = i * piece; k < std::min(count, (i + 1) * piece); ++k) body(k);
  });
}

}  // namespace

void to_floats(const std::byte* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  in_pieces(count, [&](int64_t k) { to[k] = from_16_bits(dtype, bits[k]); });
}

void from_floats(const float* from, int64_t count, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* bits = reinterpret_cast<uint16_t*>(to);
  in_pieces(count, [&](int64_t k) { bits[k] = to_16_bits(dtype, from[k]); });
}

}  // namespace rw::cpu
