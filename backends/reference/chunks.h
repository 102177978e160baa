// Rows of an optimizer's table of chunks (shaders/params.h).
#pragma once

#include <cmath>

#include "../../shaders/params.h"
#include "elements.h"

namespace rw::reference {

struct Chunk {
  uint64_t begin, grad, size, number;
};

inline Chunk chunk_of(const Elements& table, uint64_t row) {
  const auto at = [&](uint64_t k) {
    return static_cast<uint64_t>(table.geti(CHUNK_ROW * row + k));
  };
  return {at(0), at(1), at(2), at(3)};
}

// A count of an optimizer's state, by its two digits.
inline double digits_of(const Elements& state, uint64_t low, uint64_t high) {
  return double{state.get(low)} + 0x1p24 * double{state.get(high)};
}
inline double count_of(const Elements& state, uint64_t slot) {
  return digits_of(state, slot, slot + STATE_HIGH);
}
inline void set_digits(Elements& state, uint64_t low, uint64_t high, double count) {
  state.set(low, static_cast<Real>(std::fmod(count, 0x1p24)));
  state.set(high, static_cast<Real>(std::floor(count * 0x1p-24)));
}

// The updates of the parameter that has this chunk.
inline double own_updates(const Elements& state, uint64_t chunk) {
  const uint64_t missed = STATE_MISSED(chunk);
  return count_of(state, STATE_UPDATES) - digits_of(state, missed, missed + 1);
}

// Calls begin(chunk) for the rows of a call, and then body(i, at) for each element of the row: `i`
// is its index in the parameters, `at` in the gradients.
template <class P, class G, class F>
void each_element(const Elements& table, const P& p, G&& begin, F&& body) {
  for (uint64_t row = p.first; row < p.first + p.rows; ++row) {
    const Chunk chunk = chunk_of(table, row);
    begin(chunk);
    for (uint64_t k = 0; k < chunk.size; ++k) body(chunk.begin + k, chunk.grad + k);
  }
}

// The same without begin().
template <class P, class F>
void each_element(const Elements& table, const P& p, F&& body) {
  each_element(
      table, p, [](const Chunk&) {}, body);
}

}  // namespace rw::reference
