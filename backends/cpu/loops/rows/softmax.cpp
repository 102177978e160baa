// Softmax of rows and its logarithm.
#include "backends/cpu/loops/rows/rows.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

void log_softmax_row(Row& x, int64_t cols, const Operand& y) {
  const float top = top_of(x, cols);
  double powers = 0;
  blocks_of(cols, [&](int64_t at, int64_t n) {
    Block result;
    exponentials(x.read(at, n), n, top, result.at);
    powers += sum(result.at, n);
  });
  const float shift = static_cast<float>(__builtin_log(powers));
  blocks_of(cols, [&](int64_t at, int64_t n) {
    Block result;
    const float* from = x.read(at, n);
    float* to = place(y, at, result.at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] = (from[i] - top) - shift;
    write(y, at, n, to);
  });
}

// If y is f32, or the row is one block, exponentials are computed only once.
void softmax_row(Row& x, int64_t cols, const Operand& y) {
  const bool keeps = y.dtype == DType::f32 || cols <= block;
  const float top = top_of(x, cols);
  double powers = 0;
  Block result;
  const auto make = [&](int64_t at, int64_t n) {
    float* const to = place(y, at, result.at);
    exponentials(x.read(at, n), n, top, to);
    return to;
  };
  blocks_of(cols, [&](int64_t at, int64_t n) { powers += sum(make(at, n), n); });
  const float scale = static_cast<float>(1 / powers);
  blocks_of(cols, [&](int64_t at, int64_t n) {
    float* const to = keeps ? place(y, at, result.at) : make(at, n);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] *= scale;
    write(y, at, n, to);
  });
}

}  // namespace

bool softmax(const LoopCall& call) {
  const auto& p = params<SoftmaxParams>(call);
  const bool logarithm = call.constant[0] == 1;
  const Operand x = operand(call, 0), y = operand(call, 1);
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * (x.width + y.width), [&](int64_t row) {
    Row values(x, row, cols);
    const auto make = logarithm ? log_softmax_row : softmax_row;
    make(values, cols, y.from(row * cols));
  });
  return true;
}

bool softmax_grad(const LoopCall& call) {
  const auto& p = params<SoftmaxParams>(call);
  const bool logarithm = call.constant[0] == 1;
  const Operand y = operand(call, 0), dy = operand(call, 1), dx = operand(call, 2);
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * (y.width + dy.width + dx.width), [&](int64_t row) {
    Row values(y, row, cols), grads(dy, row, cols);
    Block result;
    double sums = 0;
    blocks_of(cols, [&](int64_t at, int64_t n) {
      const float* g = grads.read(at, n);
      sums += logarithm ? sum(g, n)
                        : sum(
                              n, [](auto a, auto b) { return a * b; }, g, values.read(at, n));
    });
    const float total = static_cast<float>(sums);
    blocks_of(cols, [&](int64_t at, int64_t n) {
      const float *v = values.read(at, n), *g = grads.read(at, n);
      float* to = place(dx, row * cols + at, result.at);
      if (logarithm) {
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i) to[i] = mul_add(-exp(v[i]), total, g[i]);
      } else {
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i) to[i] = v[i] * (g[i] - total);
      }
      write(dx, row * cols + at, n, to);
    });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
