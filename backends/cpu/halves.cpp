#include "backends/cpu/halves.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/cpu/loops.h"
#include "backends/cpu/work.h"

namespace rw::cpu {

namespace {

// Returns the best level; all levels give the same bits.
const std::optional<Level>& level() {
  static const std::optional<Level> best = [] {
    const std::vector<Level> all = levels();
    return all.empty() ? std::nullopt : std::optional(all.front());
  }();
  return best;
}

}  // namespace

void to_floats(const std::byte* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (level()) return level()->to_floats(from, dtype, count, to);
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  for (int64_t k = 0; k < count; ++k) to[k] = from_16_bits(dtype, bits[k]);
}

void from_floats(const float* from, int64_t count, DType dtype, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (level()) return level()->from_floats(from, count, dtype, to);
  auto* bits = reinterpret_cast<uint16_t*>(to);
  for (int64_t k = 0; k < count; ++k) bits[k] = to_16_bits(dtype, from[k]);
}

void all_to_floats(const std::byte* from, DType dtype, int64_t count, float* to) {
  constexpr int64_t chunk = 1 << 14;
  parallel_for((count + chunk - 1) / chunk, [&](int64_t i) {
    const int64_t at = i * chunk;
    to_floats(from + static_cast<uint64_t>(at) * size_of(dtype), dtype, std::min(chunk, count - at),
              to + at);
  });
}

}  // namespace rw::cpu
