// Sums over the rows of a matrix, and passes over it that use values of its columns.
#pragma once

#include "../vectors.h"

namespace rw::cpu::REWIND_LEVEL {

constexpr int64_t strip = 128;     // the most columns of a tile that is summed
constexpr int64_t tile_rows = 64;  // the most rows of a tile, which stays in the first-level cache

// Rows [first, end) and columns [col, col + width) of a matrix.
struct Tile {
  int64_t first, end, col, width;
};

// Returns how many rows of so few columns make one row of up to `most` columns.
inline int64_t rows_as_one(int64_t cols, int64_t most) {
  return cols * 2 <= most ? most / cols : 1;
}

// Calls finish(c, totals) for each column, with the sums that piece(tile, sums[n]) has added to
// `sums[k]` of a column, in pieces of rows, and over these pieces in order. With `fold` rows of x
// taken as one, the matrix of tiles is [rows / fold, fold * cols], whose last row may be short.
// `width` is the bytes of an element, over all operands.
template <int n, class Piece, class Finish>
inline void column_sums(int64_t rows, int64_t cols, int64_t width, int64_t fold, const Piece& piece,
                        const Finish& finish) {
  constexpr int64_t most = 64;
  struct Sums {
    double of[n][strip];
  };
  alignas(64) Sums parts[most];
  const int64_t wide = fold * cols, high = rows / fold, strips = divide_up(wide, strip);
  const int64_t bytes = rows * cols * width, fitting = most / least(strips, most);
  const int64_t wanted = least(fitting, 1 + bytes / (32 << 10));
  const int64_t height = divide_up(divide_up(high, wanted), 4) * 4;
  const int64_t pieces = height == 0 ? 1 : divide_up(high, height);
  for (int64_t begin = 0; begin < strips; begin += most / pieces) {
    const int64_t count = least(most / pieces, strips - begin);
    parallel_for(count * pieces, bytes, [&](int64_t i) {
      Sums& part = parts[i] = {};
      const int64_t col = (begin + i / pieces) * strip, first = i % pieces * height;
      const int64_t end = least(high, first + height);
      for (int64_t at = first; at < end; at += tile_rows)
        piece(Tile{at, least(end, at + tile_rows), col, least(strip, wide - col)}, part.of);
    });
    if (rows % fold != 0) piece(Tile{high, high + 1, 0, rows % fold * cols}, parts[0].of);
    for (int64_t s = 0; s < count; ++s) {
      Sums& all = parts[s * pieces];
      for (int64_t k = 1; k < pieces; ++k)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t c = 0; c < strip; ++c) all.of[j][c] += parts[s * pieces + k].of[j][c];
      const int64_t col = (begin + s) * strip;
      for (int64_t c = col; c < least(cols, col + strip); ++c) {
        double totals[n] = {};
        for (int64_t k = 0; k < fold; ++k)
          for (int64_t j = 0; j < n; ++j) totals[j] += all.of[j][c - col + k * cols];
        finish(c, totals);
      }
    }
  }
}

// Holds a tile's rows as f32: rows of x [rows, wide], where they are or in `buffer`.
struct alignas(64) TileBuffer {
  float at[tile_rows * strip];
};
inline Rows read_rows(const Operand& x, const Tile& t, int64_t wide, TileBuffer& buffer) {
  const int64_t first = t.first * wide + t.col;
  if (x.dtype == DType::f32) return {x.as<float>(first), wide};
  for (int64_t row = 0; row < t.end - t.first; ++row)
    read(x, first + row * wide, t.width, buffer.at + row * strip);
  return {buffer.at, strip};
}

// One element as f32.
inline float element(const Operand& x, int64_t at) {
  float value;
  return *read(x, at, 1, &value);
}

// Adds to each sum the sum of f(row, c) over the rows of a tile.
template <class F>
inline void add_rows(const Tile& t, double* sums, const F& f) {
  alignas(64) float totals[strip];
  const int64_t rows = t.end - t.first;
  for (int64_t c = 0; c < t.width; ++c) totals[c] = 0;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    REWIND_VECTORIZE
    for (int64_t c = 0; c < t.width; ++c)
      totals[c] += (f(row, c) + f(row + 1, c)) + (f(row + 2, c) + f(row + 3, c));
  }
  for (; row < rows; ++row) {
    REWIND_VECTORIZE
    for (int64_t c = 0; c < t.width; ++c) totals[c] += f(row, c);
  }
  for (int64_t c = 0; c < t.width; ++c) sums[c] += totals[c];
}

// Adds the sums of x and of x^2 over the rows of a tile. It squares deviations from the tile's own
// mean: if the mean is large, squares of x would lose them in f32.
template <class X>
inline void add_moments(const Tile& t, const X& x, double (&sums)[2][strip]) {
  double columns[strip] = {}, deviations[strip] = {}, squares[strip] = {};
  alignas(64) float mean[strip];
  const double rows = static_cast<double>(t.end - t.first);
  add_rows(t, columns, x);
  for (int64_t c = 0; c < t.width; ++c) mean[c] = static_cast<float>(columns[c] / rows);
  add_rows(t, deviations, [&](int64_t row, int64_t c) { return x(row, c) - mean[c]; });
  add_rows(t, squares, [&](int64_t row, int64_t c) {
    const float d = x(row, c) - mean[c];
    return d * d;
  });
  for (int64_t c = 0; c < t.width; ++c) {
    const double m = mean[c], exact = rows * m + deviations[c];
    sums[0][c] += exact == exact ? exact : columns[c];  // an infinite mean has no deviations
    sums[1][c] += squares[c] + m * (2 * deviations[c] + rows * m);
  }
}

// Calls body(at, count, values) for the elements of a tensor [samples, rows, cols], in runs of up
// to `block`; narrow rows are taken together. prepare(sample, column, lane, values) computes n
// values of a column, which body finds at values[k].at[lane].
template <int n, class Prepare, class Body>
inline void column_tiles(int64_t samples, int64_t rows, int64_t cols, int64_t width,
                         const Prepare& prepare, const Body& body) {
  if (samples * rows * cols == 0) return;
  constexpr int64_t piece = 64;
  const int64_t wide = least(rows_as_one(cols, block), rows) * cols, size = rows * cols;
  const int64_t pieces = divide_up(divide_up(size, wide), piece), strips = divide_up(wide, block);
  parallel_for(samples * strips * pieces, samples * size * width, [&](int64_t i) {
    const int64_t sample = i / (strips * pieces), col = i / pieces % strips * block;
    const int64_t first = i % pieces * piece, columns = least(block, wide - col);
    Block values[n];
    const int64_t known = least(cols, columns);
    for (int64_t c = 0; c < known; ++c) prepare(sample, col + c, c, values);
    for (int64_t c = known; c < columns; ++c)
      for (Block& v : values) v.at[c] = v.at[c - known];
    for (int64_t row = first; row < first + piece; ++row) {
      const int64_t at = row * wide + col;
      if (at < size) body(sample * size + at, least(columns, size - at), values);
    }
  });
}

// Computes y = (x - first - mean) * scale + shift by columns; prepare() makes the four blocks.
enum { of_first, of_mean, of_scale, of_shift };
template <class Prepare>
inline void normalize_columns(int64_t samples, int64_t rows, int64_t columns, const Operand& x,
                              const Operand& y, const Prepare& prepare) {
  column_tiles<4>(samples, rows, columns, x.width + y.width, prepare,
                  [&](int64_t at, int64_t count, const Block* v) {
                    Block values, result;
                    const float* from = read(x, at, count, values.at);
                    float* to = place(y, at, result.at);
                    REWIND_VECTORIZE
                    for (int64_t i = 0; i < count; ++i)
                      to[i] = mul_add(from[i] - v[of_first].at[i] - v[of_mean].at[i],
                                      v[of_scale].at[i], v[of_shift].at[i]);
                    write(y, at, count, to);
                  });
}

}  // namespace rw::cpu::REWIND_LEVEL
