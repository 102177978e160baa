// Rows of an optimizer's table of chunks (shaders/params.h).
#pragma once

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

// Calls body(i, at) for each element of the rows of a call: `i` is its index in the parameters,
// `at` in the gradients.
template <class P, class F>
void each_element(const Elements& table, const P& p, F&& body) {
  for (uint64_t row = p.first; row < p.first + p.rows; ++row) {
    const Chunk chunk = chunk_of(table, row);
    for (uint64_t k = 0; k < chunk.size; ++k) body(chunk.begin + k, chunk.grad + k);
  }
}

}  // namespace rw::reference
