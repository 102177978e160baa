// Running a row of the op table: inputs on a device, outputs and gradients as host values, and the
// gradients' check against central differences.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "rewind/core/ops/operators.h"
#include "tests/op_cases.h"

namespace rw::test {

using HostValues = std::vector<std::vector<float>>;

// Outputs and, per input, the gradient of the loss below (empty where there is none).
struct Evaluation {
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
Evaluation evaluate(const Tensors& inputs, F&& run) {
  manual_seed(7);
  Evaluation result;
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

// The row's loss in double, without the tape.
inline double host_loss(const OpCase& row, const Tensors& inputs) {
  const NoGrad guard;
  manual_seed(7);
  const Tensors outputs = row.run(inputs);
  double loss = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!is_float(outputs[k].dtype())) continue;
    const std::vector<float> y = outputs[k].to_vector(), w = loss_weights(outputs[k].shape(), k);
    for (size_t i = 0; i < y.size(); ++i) loss += double{y[i]} * w[i];
  }
  return loss;
}

// Compares up to 24 elements of each input's gradient with central differences.
inline void check_gradients(const OpCase& row) {
  const Tensors inputs = make_inputs(row);
  const Evaluation analytic = evaluate(inputs, row.run);
  Tensors points = make_inputs(row);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!row.inputs[k].differentiable) continue;
    const std::vector<float> at = input_values(row.inputs[k], k);
    CHECK_MESSAGE(analytic.gradients[k].size() == at.size(),
                  row.name << ": input " << k << " has no gradient");
    if (analytic.gradients[k].size() != at.size()) continue;
    const size_t stride = at.size() / 24 + 1;
    for (size_t i = 0; i < at.size(); i += stride) {
      const auto loss_at = [&](float value) {
        std::vector<float> moved = at;
        moved[i] = value;
        points[k].copy_from(moved);
        return host_loss(row, points);
      };
      const float up = at[i] + static_cast<float>(row.step),
                  down = at[i] - static_cast<float>(row.step);
      const double numeric = (loss_at(up) - loss_at(down)) / (double{up} - down);
      const double error = std::abs(numeric - analytic.gradients[k][i]) / (1 + std::abs(numeric));
      CHECK_MESSAGE(error <= row.gradient_tolerance,
                    row.name << ": input " << k << " element " << i << ": gradient "
                             << analytic.gradients[k][i] << ", differences give " << numeric);
    }
    points[k].copy_from(at);
  }
}

// |a - b| / |b| in the L2 norm, infinite when sizes differ or a value is not finite.
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, scale = 1e-12;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    scale += double{b[i]} * b[i];
  }
  const double distance = std::sqrt(difference / scale);
  return std::isfinite(distance) ? distance : INFINITY;
}

inline void check_close(const Evaluation& actual, const Evaluation& expected, double tolerance,
                        const std::string& what) {
  const auto compare = [&](const HostValues& a, const HostValues& e, const std::string& kind) {
    REQUIRE(a.size() == e.size());
    for (size_t k = 0; k < a.size(); ++k) {
      const double distance = relative_distance(a[k], e[k]);
      CHECK_MESSAGE(distance <= tolerance,
                    what << ": " << kind << " " << k << " differs by " << distance);
    }
  };
  compare(actual.outputs, expected.outputs, "output");
  compare(actual.gradients, expected.gradients, "gradient");
}

inline void check_equal(const Evaluation& actual, const Evaluation& expected,
                        const std::string& what) {
  CHECK_MESSAGE(actual.outputs == expected.outputs, what << ": outputs differ");
  CHECK_MESSAGE(actual.gradients == expected.gradients, what << ": gradients differ");
}

}  // namespace rw::test
