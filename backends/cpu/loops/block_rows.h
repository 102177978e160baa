// Rows of matrices in blocks (shaders/params/quantize.h), and their floats.
#pragma once

#include "block_codes.h"
#include "vectors.h"

namespace rw::cpu::REWIND_LEVEL {

// Blocks of a row, one after the other.
struct Blocks {
  const uint8_t* at;
  int64_t number;         // of the first one, among all of the matrix
  const uint8_t* shared;  // by blocks of NF4, behind the last row
};

// A matrix in blocks.
template <class Type>
struct Matrix {
  const uint8_t* codes;
  int64_t cols, row_bytes, first, tail;

  Matrix(const LoopCall& call, uint32_t codes_number, const BlockMatrixParams& p)
      : codes(operand(call, codes_number).as<const uint8_t>()),
        cols(p.cols),
        row_bytes(p.row_bytes),
        first(p.first),
        tail(p.tail) {}

  // Those of this row, from the block on that has this column.
  Blocks row(int64_t row, int64_t column = 0) const {
    const int64_t at = column / Type::elements;
    row += first;
    return {codes + row * row_bytes + at * Type::bytes, row * (cols / Type::elements) + at,
            codes + tail};
  }
};

template <class Type>
constexpr bool has_groups = requires {
  Type::group;
};

// Decodes block k. A code and the low end are rounded once together, as codes without a low end
// are.
template <class Type>
REWIND_INLINE void decode_block(const Blocks& from, int64_t k, float* to) {
  const uint8_t* const b = from.at + k * Type::bytes;
  if constexpr (!has_groups<Type>) {
    const Vec scale = all(Type::scale(from.shared, from.number + k));
    for (int64_t i = 0; i < Type::elements; i += lanes) store(to + i, Type::codes(b, i) * scale);
  } else {
    Type::each_group(
        b, [=](int64_t first, float step, float low,
               const auto& codes) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int64_t i = 0; i < Type::group; i += lanes) {
            const Vec q = floats(codes(i, Ints()));
            store(to + first + i, Type::has_low ? mul_add(all(step), q, all(low)) : all(step) * q);
          }
        });
  }
}

}  // namespace rw::cpu::REWIND_LEVEL
