// Products of 16-bit factors, which are widened while they are packed, and products of one row.
#include "backends/cpu/loops/halves.h"
#include "backends/cpu/loops/product.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The columns of b that are packed together, one line after the other, as a tile of registers reads
// them.
constexpr int64_t panel = 2 * lanes;

// Converts a to f32 in its own layout, times alpha.
void widen(const ProductTile& t, float* to) {
  const int64_t lines = t.a.is_transposed ? t.k : t.m, length = t.a.is_transposed ? t.m : t.k;
  for (int64_t i = 0; i < lines; ++i)
    to_floats(t.a.data + i * t.a.step * 2, t.dtype, length, to + i * length);
  const float alpha = t.alpha;
  if (alpha != 1) each(lines * length, [=](int64_t i) { to[i] *= alpha; });
}

// Packs b as panels of [k, panel], the first at `to`; columns after the last one have any values.
void pack(const ProductTile& t, float* to) {
  const Operand b{const_cast<std::byte*>(t.b.data), t.dtype};
  constexpr int64_t depth = 128;
  alignas(64) float buffer[panel * depth] = {};
  if (!t.b.is_transposed) {
    for (int64_t row = 0; row < t.k; ++row)
      blocks_of(t.n, [&](int64_t at, int64_t count) {
        const float* x = read(b, row * t.b.step + at, count, buffer);
        for (int64_t col = 0; col < count; col += panel)
          __builtin_memcpy(to + (at + col) * t.k + row * panel, x + col, panel * sizeof(float));
      });
    return;
  }
  for (int64_t col = 0; col < t.n; col += panel)
    for (int64_t at = 0; at < t.k; at += depth) {
      const int64_t width = least(panel, t.n - col), count = least(depth, t.k - at);
      for (int64_t i = 0; i < width; ++i)
        read(b, (col + i) * t.b.step + at, count, buffer + i * depth);
      transpose(width, count, buffer, depth, 1, to + col * t.k + at * panel, panel);
    }
}

// Computes rows [row, row + rows) of columns [col, col + width), which is at most a panel; b is
// that panel.
template <bool adds>
void multiply_block(const ProductTile& t, Factor a, const float* b, int64_t row, int64_t rows,
                    int64_t col, int64_t width) {
  float* const c = t.c + row * t.c_step + col;
  const int64_t whole = width / lanes * lanes, rest = width - whole;
  product<adds>(rows, whole, t.k, a, b, panel, c, t.c_step);
  if (rest > 0) {  // columns that do not fill a register
    float edge[product_rows * lanes] = {};
    const auto each_rest = [=](const auto& body) {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < rest; ++j) body(c[i * t.c_step + whole + j], i * lanes + j);
    };
    if (adds) each_rest([&](float& x, int64_t at) { edge[at] = x; });
    product<adds>(rows, lanes, t.k, a, b + whole, panel, edge, lanes);
    each_rest([&](float& x, int64_t at) { x = edge[at]; });
  }
  if (!t.y) return;
  for (int64_t i = 0; i < rows; ++i)
    from_floats(c + i * t.c_step, width, t.y_dtype, t.y + ((row + i) * t.y_step + col) * 2);
}

template <bool adds>
void multiply_packed(const ProductTile& t, const Factor& a, const float* b) {
  if (t.k == 1 && !t.y) {  // mostly c moves, so by whole lines, since b's panels are one
    for (int64_t row = 0; row < t.m; ++row) {
      const float factor = a.at[row];
      float* const c = t.c + row * t.c_step;
      each(t.n, [=](int64_t j) { c[j] = adds ? c[j] + factor * b[j] : factor * b[j]; });
    }
    return;
  }
  for (int64_t col = 0; col < t.n; col += panel)
    for (int64_t row = 0; row < t.m; row += product_rows)
      multiply_block<adds>(t, {a.at + row * a.row, a.row, a.col}, b + col * t.k, row,
                           least(product_rows, t.m - row), col, least(panel, t.n - col));
}

}  // namespace

void multiply(const ProductTile& t) {
  float* const b = t.scratch + divide_up(t.m * t.k, 16) * 16;
  widen(t, t.scratch);
  pack(t, b);
  const Factor a = t.a.is_transposed ? Factor{t.scratch, 1, t.m} : Factor{t.scratch, t.k, 1};
  t.adds ? multiply_packed<true>(t, a, b) : multiply_packed<false>(t, a, b);
}

// ---- a row times a matrix ----------------------------------------------------------------------

namespace {

// Computes c[i] = alpha * sums[i] + beta * c[i].
void finish(const MatmulParams& p, const Operand& c, int64_t count, float* sums) {
  Block before;
  const float alpha = p.alpha, beta = p.beta;
  const float* was = beta == 0 ? sums : read(c, 0, count, before.at);
  each(count,
       [=](int64_t i) { sums[i] = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * was[i]; });
  write(c, 0, count, sums);
}

// Computes c[j] for j in [0, count), at most a block, as dot products with lines of b, whose
// elements are converted in registers: most of the time goes into reading them.
template <class T>
void dot_lines_of(const MatmulParams& p, const Operand& a, const T* b, int64_t count,
                  const Operand& c) {
  Block left, sums;
  for (int64_t j = 0; j < divide_up(count, lanes) * lanes; ++j) sums.at[j] = 0;
  blocks_of(p.k, [&](int64_t at, int64_t size) {
    const float* x = read(a, at, size, left.at);
    for (int64_t j = 0; j < count; j += lanes) {
      const T* const lines = b + j * p.b_col + at;
      store(sums.at + j,
            load(sums.at + j) + dots<true>(least(lanes, count - j), size, x, lines, p.b_col));
    }
  });
  finish(p, c, count, sums.at);
}
void dot_lines(const MatmulParams& p, const Operand& a, const Operand& b, int64_t count,
               const Operand& c) {
  if (b.dtype == DType::f16) return dot_lines_of(p, a, b.as<const Half>(), count, c);
  if (b.dtype == DType::bf16) return dot_lines_of(p, a, b.as<const Brain>(), count, c);
  dot_lines_of(p, a, b.as<const float>(), count, c);
}

// Computes the same as a weighted sum of b's lines.
void add_lines(const MatmulParams& p, const Operand& a, const Operand& b, int64_t count,
               const Operand& c) {
  constexpr int64_t group = 4;
  Block left, lines[group], sums;
  float* const to = sums.at;
  each(count, [=](int64_t j) { to[j] = 0; });
  blocks_of(p.k, [&](int64_t at, int64_t size) {
    const float* x = read(a, at, size, left.at);
    const auto line = [&](int64_t i) {
      return read(b, (at + i) * p.b_row, count, lines[i % group].at);
    };
    int64_t i = 0;
    for (; i + group <= size; i += group) {
      const float *y0 = line(i), *y1 = line(i + 1), *y2 = line(i + 2), *y3 = line(i + 3);
      const float x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
      each(count, [=](int64_t j) {
        const float two = mul_add(x1, y1[j], mul_add(x0, y0[j], to[j]));
        to[j] = mul_add(x3, y3[j], mul_add(x2, y2[j], two));
      });
    }
    for (; i < size; ++i) {
      const float* y = line(i);
      const float factor = x[i];
      each(count, [=](int64_t j) { to[j] = mul_add(factor, y[j], to[j]); });
    }
  });
  finish(p, c, count, to);
}

}  // namespace

bool matmul(const LoopCall& call) {
  const auto& p = params<MatmulParams>(call);
  const bool has_lines = p.b_row == 1 && (p.b_col != 1 || p.n == 1);  // b's columns are lines
  if (p.m != 1 || p.k == 0 || p.a_col != 1 || !(has_lines || p.b_col == 1 || p.n == 1))
    return false;
  const Operand a = operand(call, 0), b = operand(call, 1), c = operand(call, 2);
  const int64_t batches = int64_t{p.batch[0]} * p.batch[1], n = p.n;
  // Small pieces, so that few lines are shared evenly, but not so small that handing them out, and
  // reading a for each, shows.
  const int64_t width = has_lines ? (p.k < 512 || n >= 1024 ? 64 : lanes) : 256;
  const int64_t across = divide_up(n, width);
  parallel_for(batches * across, batches * n * p.k * b.width, [&](int64_t i) {
    const int64_t outer = i / across / p.batch[1], inner = i / across % p.batch[1];
    const auto at = [&](const uint32_t(&step)[2]) { return outer * step[0] + inner * step[1]; };
    const int64_t col = i % across * width, count = least(width, n - col);
    (has_lines ? dot_lines : add_lines)(p, a.from(at(p.a_batch)),
                                        b.from(at(p.b_batch) + col * p.b_col), count,
                                        c.from(at(p.c_batch) + col));
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
