// The vector loops of matrices in blocks, compared with those of the reference.
#include <doctest/doctest.h>

#include <array>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"
#include "tests/fixtures/block_fixture.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

LoopArgument codes_of(const BlockType& type, uint32_t rows, uint32_t cols) {
  const std::vector<uint8_t> bytes = some_codes(type, rows, cols);
  return {bytes.size(), DType::u8, Fill::given, {bytes.begin(), bytes.end()}};
}

uint32_t block_row_bytes(const BlockType& type, uint32_t cols) {
  return static_cast<uint32_t>(BlockMatrix::stored_shape(1, cols, type)[1]);
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: blocks become floats, with the bits of the reference") {
  uint32_t number = 0;
  for (const BlockType* type : file_block_types()) {
    CAPTURE(type->name);
    for (const uint32_t cols : {256u, 2304u})
      for (const DType dtype : floats)
        check_loop({"decode_blocks", {codes_of(*type, 37, cols), {30 * cols, dtype}}, {number}, 0},
                   BlockMatrixParams{.rows = 30,
                                     .cols = cols,
                                     .row_bytes = block_row_bytes(*type, cols),
                                     .first = 7,
                                     .tail = 37 * block_row_bytes(*type, cols)});
    ++number;
  }
}

TEST_CASE("cpu loops: rows times blocks") {
  uint32_t number = 0;
  for (const BlockType* type : file_block_types()) {
    CAPTURE(type->name);
    // In the last of these, x is too large to be rounded at once.
    for (const auto& [rows, cols] :
         {std::pair{37u, 256u}, {5u, 8448u}, {2049u, 256u}, {3u, 33024u}})
      for (const uint32_t m : {1u, 2u, 7u, 8u})
        for (const DType dtype : floats)
          check_loop({"multiply_blocks",
                      {{m * cols, dtype, m == 2 ? Fill::specials : Fill::numbers},
                       codes_of(*type, rows, cols),
                       {m * rows, dtype}},
                      {number},
                      summed},
                     BlockMatrixParams{.rows = rows,
                                       .cols = cols,
                                       .row_bytes = block_row_bytes(*type, cols),
                                       .m = m,
                                       .tail = rows * block_row_bytes(*type, cols)});
    ++number;
  }
}

TEST_CASE("cpu loops: rows times blocks whose rows end within a scale of x") {
  uint32_t number = 0;
  for (const BlockType* type : file_block_types()) {
    const uint32_t type_number = number++;
    CAPTURE(type->name);
    for (const uint32_t cols : {32u, 288u, 320u, 576u}) {
      if (cols % type->elements != 0) continue;
      for (const uint32_t m : {1u, 3u})
        for (const DType dtype : floats)
          check_loop({"multiply_blocks",
                      {{m * cols, dtype}, codes_of(*type, 7, cols), {m * 7, dtype}},
                      {type_number},
                      summed},
                     BlockMatrixParams{.rows = 7,
                                       .cols = cols,
                                       .row_bytes = block_row_bytes(*type, cols),
                                       .m = m,
                                       .tail = 7 * block_row_bytes(*type, cols)});
    }
  }
}

TEST_CASE("cpu loops: many rows times blocks") {
  uint32_t number = 0;
  for (const BlockType* type : file_block_types()) {
    const uint32_t type_number = number++;
    CAPTURE(type->name);
    // Parts of the sum, pieces and tiles of registers that are not full, and blocks from a row on.
    for (const auto& [rows, cols, m] :
         {std::array{150u, 768u, 9u}, {37u, 320u, 103u}, {5u, 512u, 530u}, {2100u, 256u, 13u}}) {
      if (cols % type->elements != 0) continue;
      for (const DType dtype : floats)
        for (const Fill fill : {Fill::numbers, Fill::specials})
          check_loop({"multiply_blocks",
                      {{m * cols, dtype, fill}, codes_of(*type, rows + 2, cols), {m * rows, dtype}},
                      {type_number},
                      summed},
                     BlockMatrixParams{.rows = rows,
                                       .cols = cols,
                                       .row_bytes = block_row_bytes(*type, cols),
                                       .m = m,
                                       .first = 2,
                                       .tail = (rows + 2) * block_row_bytes(*type, cols)});
    }
  }
}
