// Products of one row.
#include "backends/cpu/loops/halves.h"
#include "backends/cpu/loops/product.h"

namespace rw::cpu::REWIND_LEVEL {

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
