#include <algorithm>
#include <cmath>

#include "backends/reference/chunks.h"
#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Returns a mean square after this update.
template <class P>
double moved(double x, double mean, const P& p, const Elements& state) {
  return x + std::pow(own_updates(state, p.own), double{p.beta2_decay}) * (mean - x);
}

double squared(double x) {
  return x * x;
}

double squared_factor(const Elements& state) {
  return squared(state.get(STATE_GRAD_FACTOR));
}

// Returns the estimate of element i's squared gradient.
double factored_estimate(const AdafactorParams& p, uint64_t i, const Elements& row_var,
                         const Elements& col_var, const Elements& mean) {
  const uint64_t row = i / p.cols, matrix = row / p.rows, col = i % p.cols;
  return double{row_var.get(row)} * col_var.get(matrix * p.cols + col) /
         std::max<double>(mean.get(matrix), p.eps1);
}

double direction(const AdafactorParams& p, double g, double v) {
  return g / std::sqrt(std::max(v, double{p.eps1} * p.eps1));
}

double root_mean_square(const AdafactorParams& p, const Elements& partial, uint64_t begin) {
  double squares = 0;
  for (uint64_t c = 0; c < p.chunks; ++c) squares += squared(partial.get(begin + c));
  return std::sqrt(squares / p.n);
}

}  // namespace

void adafactor_rows(const Call& call) {
  const auto p = call.params<AdafactorParams>();
  const Elements grad = call.in(0), state = call.in(2);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements row_var = call.inout(1);
  for (uint64_t row = 0; row < uint64_t{p.matrices} * p.rows; ++row) {
    double squares = 0;
    for (uint64_t c = 0; c < p.cols; ++c) squares += squared(grad.get(row * p.cols + c));
    const double mean = squared_factor(state) * squares / p.cols;
    row_var.set(row, static_cast<Real>(moved(row_var.get(row), mean, p, state)));
  }
}

void adafactor_columns(const Call& call) {
  const auto p = call.params<AdafactorParams>();
  const Elements grad = call.in(0);
  Elements partial = call.out(1);
  for (uint64_t i = 0; i < uint64_t{p.matrices} * p.chunks * p.cols; ++i) {
    const uint64_t col = i % p.cols, part = i / p.cols, matrix = part / p.chunks;
    const uint64_t first = part % p.chunks * ADAFACTOR_ROWS;
    double squares = 0;
    for (uint64_t r = first; r < std::min<uint64_t>(first + ADAFACTOR_ROWS, p.rows); ++r)
      squares += squared(grad.get((matrix * p.rows + r) * p.cols + col));
    partial.set(i, static_cast<Real>(std::sqrt(squares)));
  }
}

void adafactor_combine(const Call& call) {
  const auto p = call.params<AdafactorParams>();
  const Elements partial = call.in(0), state = call.in(2);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements col_var = call.inout(1);
  for (uint64_t i = 0; i < uint64_t{p.matrices} * p.cols; ++i) {
    const uint64_t matrix = i / p.cols, col = i % p.cols;
    double squares = 0;
    for (uint64_t c = 0; c < p.chunks; ++c)
      squares += squared(partial.get((matrix * p.chunks + c) * p.cols + col));
    const double mean = squared_factor(state) * squares / p.rows;
    col_var.set(i, static_cast<Real>(moved(col_var.get(i), mean, p, state)));
  }
}

void adafactor_norms(const Call& call) {
  const auto p = call.params<AdafactorParams>();
  const bool factored = call.variant(0) != 0;
  const Elements param = call.in(0), grad = call.in(1), col_var = call.in(3), mean = call.in(4),
                 state = call.in(5);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements row_var = call.inout(2), partial = call.out(6);
  const double factor = state.get(STATE_GRAD_FACTOR);
  for (uint64_t chunk = 0; chunk < p.chunks; ++chunk) {
    double squares_x = 0, squares_u = 0;
    const uint64_t begin = chunk * ADAFACTOR_CHUNK;
    for (uint64_t i = begin; i < std::min<uint64_t>(begin + ADAFACTOR_CHUNK, p.n); ++i) {
      const double x = param.get(i), g = factor * grad.get(i);
      const double v = factored ? factored_estimate(p, i, row_var, col_var, mean)
                                : moved(row_var.get(i), g * g, p, state);
      if (!factored) row_var.set(i, static_cast<Real>(v));
      const double u = direction(p, g, v);
      squares_x += squared(x);
      squares_u += squared(u);
    }
    partial.set(chunk, static_cast<Real>(std::sqrt(squares_x)));
    partial.set(p.chunks + chunk, static_cast<Real>(std::sqrt(squares_u)));
  }
}

void adafactor(const Call& call) {
  const auto p = call.params<AdafactorParams>();
  const bool factored = call.variant(0) != 0;
  const Elements grad = call.in(1), row_var = call.in(2), col_var = call.in(3), mean = call.in(4),
                 state = call.in(5), partial = call.in(6);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0);
  const double lr = double{p.lr} * state.get(STATE_LR_FACTOR);
  double rate = lr;
  if (p.flags & ADAFACTOR_RELATIVE) rate = std::min(rate, 1 / std::sqrt(own_updates(state, p.own)));
  if (p.flags & ADAFACTOR_SCALED) rate *= std::max(double{p.eps2}, root_mean_square(p, partial, 0));
  rate /= std::max(1.0, root_mean_square(p, partial, p.chunks) / p.clip);
  const double factor = state.get(STATE_GRAD_FACTOR);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double v = factored ? factored_estimate(p, i, row_var, col_var, mean) : row_var.get(i);
    const double u = direction(p, factor * grad.get(i), v);
    param.set(i, static_cast<Real>((1 - lr * p.weight_decay) * param.get(i) - rate * u));
  }
}

}  // namespace rw::reference
