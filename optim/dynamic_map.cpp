#include "optim/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rw {

std::array<float, 256> dynamic_map(bool is_signed) {
  constexpr int exponents = 7;
  std::array<float, 256> map{};
  size_t count = 0;
  for (int i = 0; i < exponents; ++i) {
    const double unit = std::pow(10.0, i - (exponents - 1));
    // The midpoints of equal parts of [0.1, 1].
    const int parts = 1 << (is_signed ? i : i + 1);
    for (int k = 0; k < parts; ++k) {
      const auto value = static_cast<float>(unit * (0.1 + 0.9 * (k + 0.5) / parts));
      map[count++] = value;
      if (is_signed) map[count++] = -value;
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::sort(map.begin(), map.end());
  return map;
}

std::array<float, 256> dynamic_bounds(const std::array<float, 256>& map) {
  std::array<float, 256> bounds{};
  for (size_t i = 0; i + 1 < map.size(); ++i)
    bounds[i] = static_cast<float>((double{map[i]} + map[i + 1]) / 2);
  bounds.back() = std::numeric_limits<float>::infinity();
  return bounds;
}

}  // namespace rw
