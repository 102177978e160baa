// Compares the gradients of an op with differences of its outputs, both in double (f64_backend.h).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "f64_backend.h"
#include "gradcheck.h"

namespace rw::test {

class F64Check {
 public:
  F64Check(F64Backend& backend, const OpCase& row)
      : backend_(backend), row_(row), points_(make_inputs(row)) {
    for (const Tensor& t : points_)
      values_.push_back(is_float(t.dtype()) ? backend.values(t) : std::vector<double>());
  }

  // Checks every gradient that the row's inputs need.
  void run() {
    const std::vector<std::vector<double>> gradients = analytic();
    for (size_t k = 0; k < points_.size(); ++k) {
      if (!row_.inputs[k].differentiable || values_[k].empty()) continue;
      CHECK_MESSAGE(gradients[k].size() == values_[k].size(),
                    row_.name << ": input " << k << " has no gradient");
      if (gradients[k].size() != values_[k].size()) continue;
      elements(k, gradients[k]);
      directions(k, gradients[k]);
      backend_.set_values(points_[k], values_[k]);
    }
  }

 private:
  // Returns the gradients of `evaluate`, in double.
  std::vector<std::vector<double>> analytic() {
    const Tensors inputs = make_inputs(row_);
    evaluate(inputs, row_.run);
    std::vector<std::vector<double>> all;
    for (const Tensor& t : inputs)
      all.push_back(t.grad().defined() ? backend_.values(contiguous(t.grad()))
                                       : std::vector<double>());
    return all;
  }

  // Returns the terms of the loss at the current inputs.
  std::vector<double> terms() const {
    const NoGrad guard;
    manual_seed(7);
    std::vector<double> all;
    const Tensors outputs = row_.run(points_);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!is_float(outputs[k].dtype())) continue;
      const std::vector<double> y = backend_.values(contiguous(outputs[k]));
      const std::vector<float> w = loss_weights(outputs[k].shape(), k);
      for (size_t i = 0; i < y.size(); ++i) all.push_back(y[i] * w[i]);
    }
    return all;
  }

  // A slope by differences, and how far their rounding may have moved it.
  struct Slope {
    double value = 0, rounding = 0;
  };

  // Returns the loss's slope if `move` moves input k. Differences are taken term by term, so that
  // terms that do not change add no rounding.
  template <class Move>
  Slope difference(size_t k, const Move& move) {
    const auto at = [&](double step) {
      std::vector<double> moved = values_[k];
      move(moved, step);
      backend_.set_values(points_[k], moved);
      return terms();
    };
    const std::vector<double> up = at(row_.step), down = at(-row_.step);
    Slope slope;
    for (size_t i = 0; i < up.size(); ++i) {
      if (up[i] == down[i]) continue;
      slope.value += (up[i] - down[i]) / (2 * row_.step);
      slope.rounding += 0x1p-52 * std::abs(up[i]) / row_.step;
    }
    return slope;
  }

  // Checks elements one by one: all elements of small inputs.
  void elements(size_t k, const std::vector<double>& gradient) {
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    const size_t most = most_elements(), stride = (gradient.size() + most - 1) / most;
    for (size_t i = 0; i < gradient.size(); i += stride) {
      const auto move = [i](std::vector<double>& x, double s) { x[i] += s; };
      const double g = gradient[i];
      const auto [expected, rounding] = difference(k, move);
      const double bound = 1e-5 * std::abs(g) + 1e-8 * largest + rounding;
      CHECK_MESSAGE(std::abs(g - expected) <= bound,
                    row_.name << ": input " << k << " element " << i << ": gradient " << g
                              << ", differences give " << expected);
    }
  }

  // Checks all elements at once, each by a step of its own random sign: one wrong element among
  // thousands shows.
  void directions(size_t k, const std::vector<double>& gradient) {
    std::mt19937 random(static_cast<uint32_t>(k));
    std::vector<double> signs(gradient.size());
    for (double& sign : signs) sign = random() % 2 == 0 ? 1 : -1;
    double along = 0, size = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      along += gradient[i] * signs[i];
      size += std::abs(gradient[i]);
    }
    const auto [expected, rounding] = difference(k, [&](std::vector<double>& x, double s) {
      for (size_t i = 0; i < x.size(); ++i) x[i] += s * signs[i];
    });
    CHECK_MESSAGE(std::abs(along - expected) <= 3e-7 * size + rounding,
                  row_.name << ": input " << k << " along a direction: gradient " << along
                            << ", differences give " << expected << ", the size is " << size);
  }

  // Rows with much work get fewer elements.
  size_t most_elements() const {
    size_t numbers = 1;
    for (const std::vector<double>& v : values_) numbers += v.size();
    return std::clamp<size_t>(20000 / numbers, 8, 64);
  }

  F64Backend& backend_;
  const OpCase& row_;
  Tensors points_;
  std::vector<std::vector<double>> values_;
};

}  // namespace rw::test
