// Reductions, places of extremes, and scans.
#include "backends/cpu/loops/fold.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

enum ReduceOp : uint32_t { reduce_sum, reduce_maximum, reduce_minimum, reduce_product };

// ---- floats, along the last axis ---------------------------------------------------------------

// Folds elements [begin, begin + count), by blocks.
template <class F>
Vec fold_blocks(const Operand& x, int64_t begin, int64_t count) {
  Block in;
  if (count <= block) return fold<F>(read(x, begin, count, in.at), count);
  Vec total = all(F::nothing);
  for (int64_t at = 0; at < count; at += block) {
    const int64_t size = least(block, count - at);
    fetch(x.from(begin + at + 2 * block).data, block * x.width);
    total = F::of(total, fold<F>(read(x, begin + at, size, in.at), size));
  }
  return total;
}

// Computes y[i] for `lanes` rows at a time, whose lanes are joined together.
template <class F>
void reduce_rows(const Operand& x, int64_t rows, int64_t count, float scale, const Operand& y) {
  const int64_t per_piece = lanes * (1 + 4 * block / (count * lanes));
  parallel_for(divide_up(rows, per_piece), rows * count * x.width, [&](int64_t piece) {
    const int64_t end = least(rows, (piece + 1) * per_piece);
    for (int64_t row = piece * per_piece; row < end; row += lanes) {
      const int64_t n = least(lanes, end - row);
      Vec totals[lanes];
      Block in;
      if (n * count <= block) {
        const float* from = read(x, row * count, n * count, in.at);
        for (int64_t i = 0; i < n; ++i) totals[i] = fold<F>(from + i * count, count);
      } else {
        for (int64_t i = 0; i < n; ++i) totals[i] = fold_blocks<F>(x, (row + i) * count, count);
      }
      for (int64_t i = n; i < lanes; ++i) totals[i] = Vec{};
      store(in.at, fold_lanes<F>(totals) * scale);
      write(y, row, n, in.at);
    }
  });
}

// Folds one long row, in pieces.
template <class F>
void reduce_long_row(const Operand& x, int64_t count, float scale, const Operand& y) {
  constexpr int64_t most = 256;
  const int64_t size = divide_up(divide_up(count, most), 16 * block) * 16 * block;
  const int64_t pieces = divide_up(count, size);
  Vec parts[most];
  parallel_for(pieces, count * x.width, [&](int64_t i) {
    parts[i] = fold_blocks<F>(x, i * size, least(size, count - i * size));
  });
  Vec total = all(F::nothing);
  for (int64_t i = 0; i < pieces; ++i) total = F::of(total, parts[i]);
  const float result = fold_lanes<F>(total) * scale;
  write(y, 0, 1, &result);
}

// ---- floats, along another axis ----------------------------------------------------------------

// Sets to[j] to the fold of rows [0, count) of x, `step` elements apart, of `width` columns. Each
// 32 rows are folded by themselves, so that rounding errors add up slowly.
template <class F>
void fold_columns(const Operand& x, int64_t count, int64_t step, int64_t width, float* to) {
  constexpr int64_t rows = 4;
  Block in[rows], part;
  for (int64_t j = 0; j < width; ++j) to[j] = F::nothing;
  for (int64_t first = 0; first < count; first += 32) {
    const int64_t end = least(count, first + 32);
    for (int64_t j = 0; j < width; ++j) part.at[j] = F::nothing;
    int64_t row = first;
    const auto line = [&](int64_t i) { return read(x, (row + i) * step, width, in[i].at); };
    for (; row + rows <= end; row += rows) {
      const float *a = line(0), *b = line(1), *c = line(2), *d = line(3);
      REWIND_VECTORIZE
      for (int64_t j = 0; j < width; ++j)
        part.at[j] = F::of(part.at[j], F::of(F::of(a[j], b[j]), F::of(c[j], d[j])));
    }
    for (; row < end; ++row) {
      const float* a = line(0);
      REWIND_VECTORIZE
      for (int64_t j = 0; j < width; ++j) part.at[j] = F::of(part.at[j], a[j]);
    }
    REWIND_VECTORIZE
    for (int64_t j = 0; j < width; ++j) to[j] = F::of(to[j], part.at[j]);
  }
}

// Folds one [count, inner] matrix, whose columns are shared in blocks and, if these are few, whose
// rows are shared in pieces, with results that fit the stack.
template <class F>
void reduce_columns(const Operand& x, const ReduceParams& p, const Operand& y) {
  constexpr int64_t width = 512, most = 64, most_parts = 16 * width;
  float parts[most_parts];
  const int64_t outer = p.outer, count = p.count, inner = p.inner, across = divide_up(inner, width);
  const int64_t wanted =
      outer * across < 16 ? least(least(most, most_parts / (outer * inner)), divide_up(count, 64))
                          : 1;
  const int64_t rows = divide_up(divide_up(count, wanted), 32) * 32,
                pieces = divide_up(count, rows);
  const float scale = p.scale;
  parallel_for(outer * pieces * across, outer * count * inner * x.width, [&](int64_t i) {
    const int64_t col = i % across * width, piece = i / across % pieces, o = i / across / pieces;
    const int64_t size = least(width, inner - col), first = piece * rows;
    Block out;
    float* to = pieces > 1 ? parts + (o * pieces + piece) * inner + col : out.at;
    fold_columns<F>(x.from((o * count + first) * inner + col), least(rows, count - first), inner,
                    size, to);
    if (pieces > 1) return;
    for (int64_t j = 0; j < size; ++j) to[j] *= scale;
    write(y, o * inner + col, size, to);
  });
  if (pieces == 1) return;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t col = 0; col < inner; col += width) {
      const int64_t size = least(width, inner - col);
      Block out;
      float* const from = parts + o * pieces * inner + col;
      fold_columns<F>({reinterpret_cast<std::byte*>(from), DType::f32}, pieces, inner, size,
                      out.at);
      for (int64_t j = 0; j < size; ++j) out.at[j] *= scale;
      write(y, o * inner + col, size, out.at);
    }
}

template <class F>
void reduce_floats(const Operand& x, const ReduceParams& p, const Operand& y) {
  if (p.inner != 1)
    reduce_columns<F>(x, p, y);
  else if (p.outer >= 16 || p.count <= 16 * block)
    reduce_rows<F>(x, p.outer, p.count, p.scale, y);
  else
    for (int64_t row = 0; row < p.outer; ++row)
      reduce_long_row<F>(x.from(row * p.count), p.count, p.scale, y.from(row));
}

// ---- integers ----------------------------------------------------------------------------------

int64_t combine(uint32_t op, int64_t total, int64_t value) {
  switch (op) {
    case reduce_sum:
      return total + value;
    case reduce_maximum:
      return value > total ? value : total;
    case reduce_minimum:
      return value < total ? value : total;
    default:
      return static_cast<int64_t>(static_cast<uint64_t>(total) * static_cast<uint64_t>(value));
  }
}

void reduce_ints(const int32_t* x, const ReduceParams& p, uint32_t op, int32_t* y) {
  const int64_t nothing[] = {0, INT32_MIN, INT32_MAX, 1}, inner = p.inner;
  parallel_for(p.outer * inner, int64_t{p.outer} * p.count * inner * 4, [&](int64_t i) {
    const int32_t* from = x + i / inner * p.count * inner + i % inner;
    int64_t total = nothing[op];
    for (int64_t k = 0; k < p.count; ++k) total = combine(op, total, from[k * inner]);
    y[i] = static_cast<int32_t>(total);
  });
}

}  // namespace

bool reduce(const LoopCall& call) {
  const auto& p = params<ReduceParams>(call);
  const uint32_t op = call.constant[0];
  const Operand x = operand(call, 0), y = operand(call, 1);
  if (op > reduce_product || p.chunk < p.count || p.count == 0) return false;
  if (p.outer == 0 || p.inner == 0) return true;
  if (x.dtype == DType::i32)
    reduce_ints(x.as<int32_t>(), p, op, y.as<int32_t>());
  else if (op == reduce_sum)
    reduce_floats<Sum>(x, p, y);
  else if (op == reduce_maximum)
    reduce_floats<Largest>(x, p, y);
  else if (op == reduce_minimum)
    reduce_floats<Least>(x, p, y);
  else
    reduce_floats<Product>(x, p, y);
  return true;
}

namespace {

// Looks for the first of the best values among elements [from, count); NaN is the best.
template <class T>
void look(const T* x, int64_t from, int64_t count, int64_t step, bool is_min, T& best,
          int64_t& place) {
  for (int64_t i = from; i < count && best == best; ++i) {
    const T value = x[i * step];
    if ((is_min ? value < best : value > best) || value != value) best = value, place = i;
  }
}

template <class T>
int32_t best_place(const T* x, int64_t count, int64_t step, bool is_min) {
  T best = x[0];
  int64_t place = 0;
  look(x, 1, count, step, is_min, best, place);
  return static_cast<int32_t>(place);
}

// Looks for it in a row of floats, in the blocks whose best value is better than all before.
int32_t best_place(const Operand& x, int64_t count, bool is_min) {
  float best = 0;
  int64_t place = 0;
  for (int64_t at = 0; at < count && best == best; at += block) {
    Block in;
    const int64_t size = least(block, count - at);
    const float* values = read(x, at, size, in.at);
    const float here = is_min ? fold_lanes<Least>(fold<Least>(values, size))
                              : fold_lanes<Largest>(fold<Largest>(values, size));
    if (at > 0 && here == here && !(is_min ? here < best : here > best)) continue;
    best = values[0];
    int64_t among = 0;
    look(values, 1, size, 1, is_min, best, among);
    place = at + among;
  }
  return static_cast<int32_t>(place);
}

}  // namespace

bool argreduce(const LoopCall& call) {
  const auto& p = params<ReduceParams>(call);
  const bool is_min = call.constant[0] == 1;
  const Operand x = operand(call, 0);
  int32_t* y = operand(call, 1).as<int32_t>();
  const int64_t inner = p.inner, count = p.count, n = p.outer * inner;
  if (count == 0 || (x.width == 2 && inner != 1)) return false;
  if (x.dtype != DType::i32 && inner == 1) {
    parallel_for(n, n * count * x.width,
                 [&](int64_t i) { y[i] = best_place(x.from(i * count), count, is_min); });
    return true;
  }
  parallel_for(n, n * count * x.width, [&](int64_t i) {
    const int64_t first = i / inner * count * inner + i % inner;
    y[i] = x.dtype == DType::f32 ? best_place(x.as<float>(first), count, inner, is_min)
                                 : best_place(x.as<int32_t>(first), count, inner, is_min);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
