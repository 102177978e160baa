// Many rows of x times a matrix in blocks. Some of its rows after the other are decoded, a part of
// the sum at a time, straight into the panels that a tile of registers reads: its floats are in the
// second-level cache and nowhere else.
#include "backends/cpu/loops/block_product.h"

#include "backends/cpu/loops/block_rows.h"
#include "backends/cpu/loops/product.h"
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

constexpr int64_t part_depth = 256;        // of a part of the sum: whole blocks of every type
constexpr int64_t code_panel = 2 * lanes;  // rows of codes, side by side
constexpr int64_t most_width = 256;        // rows of codes of a piece: whole panels
constexpr int64_t most_height = 256;       // rows of x of a piece
constexpr int64_t height_at_once = 48;     // of those: whole tiles
constexpr int64_t pieces_to_share = 16;    // which are made smaller for it
constexpr int64_t least_width = 64;        // converting x takes a few percent then

struct ProductMemory {
  alignas(64) float x[height_at_once * part_depth];
  alignas(64) float w[most_width * part_depth];  // panels of [part_depth, code_panel]
  alignas(64) float sums[most_height * most_width];
  alignas(64) float decoded[code_panel * part_depth];
};

// Packs columns [at, at + count) of rows [first, first + rows) of the codes.
template <class Type>
void pack_codes(const Matrix<Type>& codes, int64_t first, int64_t rows, int64_t at, int64_t count,
                ProductMemory& work) {
  for (int64_t row = 0; row < rows; row += code_panel) {
    const int64_t filled = least(code_panel, rows - row);
    for (int64_t i = 0; i < filled; ++i) {
      const Blocks from = codes.row(first + row + i, at);
      for (int64_t k = 0; k * Type::elements < count; ++k)
        decode_block<Type>(from, k, work.decoded + i * part_depth + k * Type::elements);
    }
    transpose(filled, count, work.decoded, part_depth, 1, work.w + row * part_depth, code_panel);
  }
}

// y [rows of the piece, columns of the piece] = x @ codes^T.
template <class Type>
void multiply_piece(const Matrix<Type>& codes, const Operand& x, int64_t m, int64_t first,
                    int64_t count, const Operand& y, int64_t y_step) {
  ProductMemory work;
  const int64_t width = divide_up(count, code_panel) * code_panel, cols = codes.cols;
  if (count < width)  // columns of the last panel that nothing fills
    for (float& v : work.w) v = 0;
  for (int64_t at = 0; at < cols; at += part_depth) {
    const int64_t size = least(part_depth, cols - at);
    pack_codes(codes, first, count, at, size, work);
    for (int64_t row = 0; row < m; row += height_at_once) {
      const int64_t rows = least(height_at_once, m - row);
      for (int64_t r = 0; r < rows; ++r) {
        float* const to = work.x + r * part_depth;
        const float* const from = read(x, (row + r) * cols + at, size, to);
        if (from != to) __builtin_memcpy(to, from, static_cast<size_t>(size) * sizeof(float));
      }
      for (int64_t c = 0; c < width; c += code_panel) {
        float* const sums = work.sums + row * width + c;
        const Factor left = {work.x, part_depth, 1};
        const float* const right = work.w + c * part_depth;
        at > 0 ? product<true>(rows, code_panel, size, left, right, code_panel, sums, width)
               : product<false>(rows, code_panel, size, left, right, code_panel, sums, width);
      }
    }
  }
  for (int64_t r = 0; r < m; ++r)
    from_floats(work.sums + r * width, count, y.dtype, y.data + (r * y_step + first) * y.width);
}

}  // namespace

bool multiply_many_rows(const LoopCall& call) {
  const auto& p = params<BlockMatrixParams>(call);
  const int64_t rows = p.rows, cols = p.cols, m = p.m;
  const Operand x = operand(call, 0), y = operand(call, 2);
  const int64_t down = divide_up(m, most_height);
  int64_t width = most_width;
  while (width > least_width && divide_up(rows, width) * down < pieces_to_share) width /= 2;
  const int64_t across = divide_up(rows, width);
  return with_type(call.constant[0], [&]<class Type>(Type) {
    const Matrix<Type> codes(call, 1, p);
    parallel_for(across * down, rows * cols, [&](int64_t piece) {
      const int64_t first = piece % across * width, row = piece / across * most_height;
      multiply_piece<Type>(codes, x.from(row * cols), least(most_height, m - row), first,
                           least(width, rows - first), y.from(row * rows), rows);
    });
  });
}

}  // namespace rw::cpu::REWIND_LEVEL
