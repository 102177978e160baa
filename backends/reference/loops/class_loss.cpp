// Losses of classes: nll_loss, and cross entropy with weights or target distributions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Returns the weighted share of class c in a row's smoothed target.
template <class P>
double share(const Call& call, const P& p, uint64_t row, uint64_t c) {
  const Elements target = call.in(1);
  double part = is_float(target.dtype())
                    ? target.get(row * p.cols + c)
                    : static_cast<double>(target.geti(row) == static_cast<int64_t>(c));
  part = (1 - double{p.smoothing}) * part + double{p.smoothing} / p.cols;
  return call.variant(0) != 0 ? part * call.in(2).get(c) : part;
}

}  // namespace

void nll_loss(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements x = call.in(0), target = call.in(1);
  Elements loss = call.out(2);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const int64_t t = target.geti(row);
    if (t == p.ignore_index)
      loss.set(row, 0);
    else
      loss.set(row, t < 0 || t >= p.cols ? nan : -x.get(row * p.cols + static_cast<uint64_t>(t)));
  }
}

void nll_loss_grad(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements target = call.in(0), dloss = call.in(1);
  Elements dx = call.out(2);
  for (uint64_t i = 0; i < uint64_t{p.rows} * p.cols; ++i) {
    const uint64_t row = i / p.cols;
    const int64_t t = target.geti(row);
    if (t == p.ignore_index)
      dx.set(i, 0);
    else if (t < 0 || t >= p.cols)
      dx.set(i, nan);
    else
      dx.set(i, t == static_cast<int64_t>(i % p.cols) ? -dloss.get(row) : 0);
  }
}

void soft_cross_entropy(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements x = call.in(0), target = call.in(1);
  Elements losses = call.out(3), lses = call.out(4), masses = call.out(5);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<double> values = x.to_doubles(row * p.cols, p.cols);
    const double top = *std::max_element(values.begin(), values.end());
    double total = 0, loss = 0, mass = 0;
    for (const double v : values) total += std::exp(v - top);
    const double lse = top + std::log(total);
    for (uint64_t c = 0; c < p.cols; ++c) {
      const double part = share(call, p, row, c);
      mass += part;
      if (part != 0) loss += part * (lse - values[c]);
    }
    if (!is_float(target.dtype())) {
      const int64_t t = target.geti(row);
      if (t == p.ignore_index)
        loss = mass = 0;
      else if (t < 0 || t >= p.cols)
        loss = mass = nan;
    }
    losses.set(row, static_cast<Real>(loss));
    lses.set(row, static_cast<Real>(lse));
    masses.set(row, static_cast<Real>(mass));
  }
}

void soft_cross_entropy_grad(const Call& call) {
  const auto p = call.params<ClassLossParams>();
  const Elements x = call.in(0), target = call.in(1), lse = call.in(3), mass = call.in(4),
                 dloss = call.in(5);
  Elements dx = call.out(6);
  for (uint64_t i = 0; i < uint64_t{p.rows} * p.cols; ++i) {
    const uint64_t row = i / p.cols;
    if (!is_float(target.dtype()) && target.geti(row) == p.ignore_index) {
      dx.set(i, 0);
      continue;
    }
    const double softmax = std::exp(double{x.get(i)} - lse.get(row));
    dx.set(i, static_cast<Real>(dloss.get(row) *
                                (mass.get(row) * softmax - share(call, p, row, i % p.cols))));
  }
}

}  // namespace rw::reference
