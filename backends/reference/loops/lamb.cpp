#include <cmath>

#include "backends/reference/chunks.h"
#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Returns the update of an element before the trust ratio.
double direction(const LambParams& p, double t, double x, double m, double v) {
  const double mean = m / (1 - std::pow(double{p.beta1}, t));
  const double root = std::sqrt(v / (1 - std::pow(double{p.beta2}, t)));
  return mean / (root + p.eps) + double{p.weight_decay} * x;
}

}  // namespace

void lamb_norms(const Call& call) {
  const auto p = call.params<LambParams>();
  const Elements param = call.in(0), grad = call.in(1), table = call.in(4), state = call.in(5);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements m = call.inout(2), v = call.inout(3), partial = call.out(6);
  const double factor = state.get(STATE_GRAD_FACTOR);
  const double beta1 = p.beta1, beta2 = p.beta2;
  for (uint64_t row = 0; row < p.rows; ++row) {
    const Chunk chunk = chunk_of(table, p.first + row);
    const double t = own_updates(state, chunk.number);
    double squares_x = 0, squares_u = 0;
    for (uint64_t i = 0; i < chunk.size; ++i) {
      const uint64_t k = chunk.begin + i;
      const double g = factor * grad.get(chunk.grad + i), x = param.get(k);
      const double m1 = beta1 * m.get(k) + (1 - beta1) * g;
      const double v1 = beta2 * v.get(k) + (1 - beta2) * g * g;
      m.set(k, static_cast<Real>(m1));
      v.set(k, static_cast<Real>(v1));
      const double u = direction(p, t, x, m1, v1);
      squares_x += x * x;
      squares_u += u * u;
    }
    const uint64_t number = chunk.number - p.number;
    partial.set(number, static_cast<Real>(std::sqrt(squares_x)));
    partial.set(p.chunks + number, static_cast<Real>(std::sqrt(squares_u)));
  }
}

void lamb_ratio(const Call& call) {
  const auto p = call.params<LambParams>();
  const Elements partial = call.in(0), first = call.in(1), state = call.in(2);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements ratio = call.out(3);
  for (uint64_t i = 0; i < p.parameters; ++i) {
    double squares_x = 0, squares_u = 0;
    const auto begin = static_cast<uint64_t>(first.geti(i)),
               end = static_cast<uint64_t>(first.geti(i + 1));
    for (uint64_t chunk = begin; chunk < end; ++chunk) {
      const double x = partial.get(chunk), u = partial.get(p.chunks + chunk);
      squares_x += x * x;
      squares_u += u * u;
    }
    const bool adapts = p.adapt != 0 && squares_x > 0 && squares_u > 0;
    const Real value = adapts ? static_cast<Real>(std::sqrt(squares_x / squares_u)) : 1;
    for (uint64_t chunk = begin; chunk < end; ++chunk) ratio.set(chunk, value);
  }
}

void lamb(const Call& call) {
  const auto p = call.params<LambParams>();
  const Elements m = call.in(1), v = call.in(2), table = call.in(3), ratio = call.in(4),
                 state = call.in(5);
  if (state.get(STATE_FOUND_INF) != 0) return;
  Elements param = call.inout(0);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const Chunk chunk = chunk_of(table, p.first + row);
    const double t = own_updates(state, chunk.number);
    const double rate =
        double{p.lr} * state.get(STATE_LR_FACTOR) * ratio.get(chunk.number - p.number);
    for (uint64_t k = chunk.begin; k < chunk.begin + chunk.size; ++k) {
      const double x = param.get(k);
      param.set(k, static_cast<Real>(x - rate * direction(p, t, x, m.get(k), v.get(k))));
    }
  }
}

}  // namespace rw::reference
