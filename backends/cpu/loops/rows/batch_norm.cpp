// Batch norm: statistics of columns, and passes that scale columns.
#include "backends/cpu/loops/rows/columns.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

float inverse_deviation(const float* var, int64_t channel, float eps) {
  return NORM_SCALE / sqrt(var[channel] + eps * NORM_SCALE * NORM_SCALE);
}

// The rest that rounding leaves of a channel's mean.
template <class P>
float rest_of(const P& p, const float* mean, int64_t channel) {
  return p.has_rest != 0 ? mean[p.channels + channel] : 0.0f;
}

}  // namespace

bool batch_norm_stats(const LoopCall& call) {
  const auto& p = params<BatchNormParams>(call);
  const Operand x = operand(call, 0);
  float *const mean = operand(call, 1).as<float>(), *const var = operand(call, 2).as<float>();
  float* const both = operand(call, 3).as<float>();
  const int64_t cols = p.channels, fold = rows_as_one(cols, strip);
  const auto first_of = [&](int64_t c) {
    const float first = element(x, c);
    return first - first == 0 ? first : 0.0f;  // differences from infinity are NaN
  };
  const auto piece = [&](const Tile& t, double(&to)[2][strip]) {
    TileBuffer values;
    alignas(64) float firsts[strip];
    for (int64_t c = 0; c < t.width; ++c) firsts[c] = first_of((t.col + c) % cols);
    const Rows v = read_rows(x, t, fold * cols, values);
    add_moments(
        t, [&](int64_t row, int64_t c) { return (v(row, c) - firsts[c]) * NORM_SCALE; }, to);
  };
  column_sums<2>(p.rows, cols, x.width, fold, piece, [&](int64_t c, const double* totals) {
    const double n = p.rows, m = totals[0] / n, variance = totals[1] / n - m * m;
    const double exact = double{first_of(c)} + m / NORM_SCALE;
    mean[c] = both[c] = static_cast<float>(exact);
    const auto rest = static_cast<float>(exact - double{mean[c]});
    both[cols + c] = rest - rest == 0 ? rest : 0.0f;
    var[c] = static_cast<float>(variance < 0 ? 0 : variance);
  });
  return true;
}

bool batch_norm(const LoopCall& call) {
  const auto& p = params<BatchNormParams>(call);
  const Operand x = operand(call, 0), y = operand(call, 5);
  const float *mean = operand(call, 1).as<float>(), *var = operand(call, 2).as<float>();
  const float *weight = operand(call, 3).as<float>(), *bias = operand(call, 4).as<float>();
  const auto prepare = [&](int64_t, int64_t c, int64_t lane, Block* v) {
    v[of_first].at[lane] = mean[c];
    v[of_mean].at[lane] = rest_of(p, mean, c);
    v[of_scale].at[lane] = inverse_deviation(var, c, p.eps) * weight[c];
    v[of_shift].at[lane] = bias[c];
  };
  normalize_columns(1, p.n / p.channels, p.channels, x, y, prepare);
  return true;
}

bool batch_norm_grad_stats(const LoopCall& call) {
  const auto& p = params<BatchNormParams>(call);
  const Operand x = operand(call, 0), dy = operand(call, 1);
  const float *mean = operand(call, 2).as<float>(), *var = operand(call, 3).as<float>();
  float* const sums = operand(call, 4).as<float>();
  const int64_t cols = p.channels, fold = rows_as_one(cols, strip);
  const auto piece = [&](const Tile& t, double(&to)[2][strip]) {
    TileBuffer values, grads;
    const Rows v = read_rows(x, t, fold * cols, values), g = read_rows(dy, t, fold * cols, grads);
    float means[strip];
    for (int64_t c = 0; c < t.width; ++c) means[c] = mean[(t.col + c) % cols];
    add_rows(t, to[0], [&](int64_t row, int64_t c) { return g(row, c) * (v(row, c) - means[c]); });
    add_rows(t, to[1], g);
  };
  column_sums<2>(p.rows, cols, x.width + dy.width, fold, piece,
                 [&](int64_t c, const double* totals) {
                   const double scale = NORM_SCALE;
                   const double rstd = scale / __builtin_sqrt(var[c] + p.eps * scale * scale);
                   const double products = totals[0] - double{rest_of(p, mean, c)} * totals[1];
                   sums[c] = static_cast<float>(products * rstd);
                   sums[cols + c] = static_cast<float>(totals[1]);
                 });
  return true;
}

bool batch_norm_grad(const LoopCall& call) {
  const auto& p = params<BatchNormParams>(call);
  const Operand x = operand(call, 0), dy = operand(call, 1), dx = operand(call, 6);
  const float *mean = operand(call, 2).as<float>(), *var = operand(call, 3).as<float>();
  const float *weight = operand(call, 4).as<float>(), *sums = operand(call, 5).as<float>();
  enum { of_mean, of_scale, of_slope, of_shift };
  const bool train = p.train != 0;
  const float rows = static_cast<float>(p.rows);
  const auto prepare = [&](int64_t, int64_t c, int64_t lane, Block* v) {
    const float rstd = inverse_deviation(var, c, p.eps);
    v[of_mean].at[lane] = mean[c];
    v[of_scale].at[lane] = weight[c] * rstd;
    const float slope = train ? sums[c] / rows * rstd : 0.0f;
    const float shift = train ? sums[p.channels + c] / rows : 0.0f;
    v[of_slope].at[lane] = slope;
    v[of_shift].at[lane] = shift - slope * rest_of(p, mean, c);
  };
  const auto body = [&](int64_t at, int64_t count, const Block* v) {
    Block values, grads, result;
    const float *from = read(x, at, count, values.at), *g = read(dy, at, count, grads.at);
    float* to = place(dx, at, result.at);
    if (train) {
      REWIND_VECTORIZE
      for (int64_t i = 0; i < count; ++i)
        to[i] = v[of_scale].at[i] *
                (g[i] - mul_add(from[i] - v[of_mean].at[i], v[of_slope].at[i], v[of_shift].at[i]));
    } else {
      REWIND_VECTORIZE
      for (int64_t i = 0; i < count; ++i) to[i] = v[of_scale].at[i] * g[i];
    }
    write(dx, at, count, to);
  };
  column_tiles<4>(1, p.n / p.channels, p.channels, x.width + dy.width + dx.width, prepare, body);
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
