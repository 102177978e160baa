#include "backends/cpu/halves.h"

#include <cstring>

namespace rw::cpu {

void to_floats(const std::byte* from, DType dtype, int64_t count, float* to) {
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  if (dtype == DType::f32)
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  else
    for (int64_t k = 0; k < count; ++k) to[k] = from_16_bits(dtype, bits[k]);
}

void from_floats(const float* from, int64_t count, DType dtype, std::byte* to) {
  auto* bits = reinterpret_cast<uint16_t*>(to);
  if (dtype == DType::f32)
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  else
    for (int64_t k = 0; k < count; ++k) bits[k] = to_16_bits(dtype, from[k]);
}

}  // namespace rw::cpu
