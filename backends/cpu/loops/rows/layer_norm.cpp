// Layer and RMS norms, which read a row three times, twice of these from the cache.
#include "backends/cpu/loops/rows/columns.h"
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

bool layer_norm(const LoopCall& call) {
  const auto& p = params<LayerNormParams>(call);
  const bool rms = call.constant[0] != 0;
  const Operand x = operand(call, 0), weight = operand(call, 1), bias = operand(call, 2),
                y = operand(call, 3);
  float* const stats = operand(call, 4).as<float>();
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * (x.width + y.width), [&](int64_t row) {
    Row values(x, row, cols);
    Block scales, shifts, result;
    const float first = rms ? 0 : *values.read(0, least(block, cols));
    const double size = static_cast<double>(cols), scale2 = double{NORM_SCALE} * NORM_SCALE;
    double sums = 0, squares = 0;
    if (!rms)
      blocks_of(cols, [&](int64_t at, int64_t n) {
        sums += sum(
            n, [first](auto v) { return v - first; }, values.read(at, n));
      });
    const float mean = static_cast<float>(sums / size);
    const auto square = [first, mean](auto v) {
      const auto d = (v - first - mean) * NORM_SCALE;
      return d * d;
    };
    blocks_of(cols, [&](int64_t at, int64_t n) { squares += sum(n, square, values.read(at, n)); });
    const float rstd = static_cast<float>(1 / __builtin_sqrt(squares / size / scale2 + p.eps));
    blocks_of(cols, [&](int64_t at, int64_t n) {
      const float* from = values.read(at, n);
      const float* scale = read(weight, at, n, scales.at);
      float* to = place(y, row * cols + at, result.at);
      if (rms) {
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i) to[i] = from[i] * rstd * scale[i];
      } else {
        const float* shift = read(bias, at, n, shifts.at);
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i)
          to[i] = mul_add((from[i] - first - mean) * rstd, scale[i], shift[i]);
      }
      write(y, row * cols + at, n, to);
    });
    stats[2 * row] = mean;
    stats[2 * row + 1] = rstd;
  });
  return true;
}

bool layer_norm_grad(const LoopCall& call) {
  const auto& p = params<LayerNormParams>(call);
  const bool rms = call.constant[0] != 0;
  const Operand x = operand(call, 0), dy = operand(call, 1), weight = operand(call, 2),
                dx = operand(call, 4);
  const float* const stats = operand(call, 3).as<float>();
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * (x.width + dy.width + dx.width), [&](int64_t row) {
    Row values(x, row, cols), grads(dy, row, cols);
    Block scales, result;
    const float first = rms ? 0 : *values.read(0, least(block, cols));
    const float mean = stats[2 * row], rstd = stats[2 * row + 1];
    double sums = 0, products = 0;
    blocks_of(cols, [&](int64_t at, int64_t n) {
      const float *v = values.read(at, n), *g = grads.read(at, n);
      const float* w = read(weight, at, n, scales.at);
      if (!rms)
        sums += sum(
            n, [](auto a, auto b) { return a * b; }, g, w);
      products += sum(
          n, [first, mean](auto a, auto b, auto c) { return a * b * (c - first - mean); }, g, w, v);
    });
    const float mean_grad = static_cast<float>(sums / static_cast<double>(cols));
    const float slope =
        static_cast<float>(products * double{rstd} * double{rstd} / static_cast<double>(cols));
    blocks_of(cols, [&](int64_t at, int64_t n) {
      const float *v = values.read(at, n), *g = grads.read(at, n);
      const float* w = read(weight, at, n, scales.at);
      float* to = place(dx, row * cols + at, result.at);
      REWIND_VECTORIZE
      for (int64_t i = 0; i < n; ++i)
        to[i] = rstd * (mul_add(g[i], w[i], -mean_grad) - (v[i] - first - mean) * slope);
      write(dx, row * cols + at, n, to);
    });
  });
  return true;
}

bool layer_norm_grad_stats(const LoopCall& call) {
  const auto& p = params<LayerNormParams>(call);
  const bool rms = call.constant[0] != 0;
  const Operand x = operand(call, 0), dy = operand(call, 1);
  const float* const stats = operand(call, 2).as<float>();
  float* const sums = operand(call, 3).as<float>();
  const int64_t cols = p.cols;
  const auto piece = [&](const Tile& t, double(&to)[2][strip]) {
    TileBuffer values, grads;
    const Rows v = read_rows(x, t, cols, values), g = read_rows(dy, t, cols, grads);
    const float* const of = stats + 2 * t.first;
    float firsts[tile_rows] = {};
    if (!rms)
      for (int64_t row = 0; row < t.end - t.first; ++row)
        firsts[row] = element(x, (t.first + row) * cols);
    add_rows(t, to[0], [&](int64_t row, int64_t c) {
      return (v(row, c) - firsts[row] - of[2 * row]) * of[2 * row + 1] * g(row, c);
    });
    add_rows(t, to[1], g);
  };
  column_sums<2>(p.rows, cols, x.width + dy.width, 1, piece, [&](int64_t c, const double* total) {
    sums[c] = static_cast<float>(total[0]);
    sums[cols + c] = static_cast<float>(total[1]);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
