// Runs a row of the op table: inputs on a device, outputs and gradients as host values, and the
// comparison of two devices.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "../../ops/operators.h"
#include "op_cases.h"

namespace rw::test {

using HostValues = std::vector<std::vector<float>>;

// The outputs and, per input, the gradient of the loss below (empty if there is none).
struct Evaluated {
  HostValues outputs, gradients;
};

// The loss of a row is sum(weight * output) with fixed weights, over all outputs.
inline std::vector<float> loss_weights(const Shape& shape, size_t output) {
  return input_values({shape, -1, 1}, 17 + output);
}

inline Tensor host_tensor(const std::vector<float>& values, const Shape& shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  t.copy_from(values);
  return t;
}

inline Tensors make_inputs(const OpCase& row, DType dtype = DType::f32) {
  Tensors inputs;
  for (const Input& input : row.inputs) {
    const DType wanted = input.dtype == DType::f32 && !input.keep_f32 ? dtype : input.dtype;
    Tensor t = host_tensor(input_values(input, inputs.size()), input.shape, wanted);
    t.set_requires_grad(input.differentiable);
    inputs.push_back(std::move(t));
  }
  return inputs;
}

// Runs forward and backward; `run` is the row's function or a version of it.
template <class F>
Evaluated evaluate(const Tensors& inputs, F&& run) {
  manual_seed(7);
  Evaluated result;
  Tensor loss;
  {
    const Tensors outputs = run(inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& y = outputs[k];
      result.outputs.push_back(y.to_vector());
      if (!y.requires_grad()) continue;
      const Tensor weight = host_tensor(loss_weights(y.shape(), k), y.shape(), DType::f32);
      const Tensor part = sum(cast(y, DType::f32) * weight);
      loss = loss.defined() ? loss + part : part;
    }
  }
  if (loss.defined()) loss.backward();
  for (const Tensor& t : inputs)
    result.gradients.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<float>());
  return result;
}

// Compares the worst element of `a` with its counterpart in `b`: |a - b| relative to |b| plus the
// root mean square of all of `b`. The latter stands for the terms of a sum that are larger than
// their result. Infinite if sizes differ or a value is not finite.
template <class T>
double largest_error(const std::vector<float>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return INFINITY;
  double squares = 1e-30, worst = 0;
  for (const double v : b) squares += v * v / static_cast<double>(b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double{a[i]} - b[i]) / (std::abs(b[i]) + std::sqrt(squares));
    if (!std::isfinite(error)) return INFINITY;
    worst = std::max(worst, error);
  }
  return worst;
}

// `of_gradients` chooses the gradients' own tolerance, if they have one.
inline void check_close(const Evaluated& actual, const Evaluated& expected, double tolerance,
                        const std::string& what, double of_gradients = 0) {
  const auto compare = [&](const HostValues& a, const HostValues& e, const std::string& kind,
                           double bound) {
    REQUIRE(a.size() == e.size());
    for (size_t k = 0; k < a.size(); ++k) {
      const double error = largest_error(a[k], e[k]);
      CHECK_MESSAGE(error <= bound, what << ": " << kind << " " << k
                                         << " has an element that differs by " << error);
    }
  };
  compare(actual.outputs, expected.outputs, "output", tolerance);
  compare(actual.gradients, expected.gradients, "gradient",
          of_gradients > 0 ? of_gradients : tolerance);
}

inline void check_equal(const Evaluated& actual, const Evaluated& expected,
                        const std::string& what) {
  CHECK_MESSAGE(actual.outputs == expected.outputs, what << ": outputs differ");
  CHECK_MESSAGE(actual.gradients == expected.gradients, what << ": gradients differ");
}

}  // namespace rw::test
