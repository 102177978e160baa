// A module for each activation, of any shape. Its op (ops/ops.h, ops/numeric.h) says what it
// computes.
#pragma once

#include "../ops/numeric.h"
#include "../ops/ops.h"
#include "module.h"

namespace rw {

// The module around a function of one tensor.
template <Tensor (*function)(Tensor)>
class Activation : public Module {
 public:
  Tensor forward(Tensor x) override { return function(std::move(x)); }
};

using ReLU = Activation<relu>;        // max(x, 0)
using Sigmoid = Activation<sigmoid>;  // 1 / (1 + exp(-x))
using Tanh = Activation<rw::tanh>;    // the hyperbolic tangent
using GELU = Activation<gelu>;        // x times the normal distribution up to x
//! torch: GELU(approximate="tanh")
using GELUTanh = Activation<gelu_tanh>;       // the tanh approximation of GELU
using SiLU = Activation<silu>;                // x * sigmoid(x)
using Mish = Activation<mish>;                // x * tanh(softplus(x))
using Softplus = Activation<softplus>;        // log(1 + exp(x))
using Softsign = Activation<softsign>;        // x / (1 + |x|)
using SELU = Activation<selu>;                // elu, scaled so that it normalises itself
using Hardtanh = Activation<hardtanh>;        // clamp(x, -1, 1)
using Hardswish = Activation<hardswish>;      // x * hardsigmoid(x)
using Hardsigmoid = Activation<hardsigmoid>;  // clamp(x / 6 + 1/2, 0, 1)
using LogSigmoid = Activation<log_sigmoid>;   // log(sigmoid(x))

// The identity.
class Identity : public Module {
 public:
  Tensor forward(Tensor x) override { return x; }
};

// x, or slope * x below 0.
class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(float slope = 0.01f) : slope_(slope) {}
  Tensor forward(Tensor x) override { return leaky_relu(std::move(x), slope_); }

 private:
  float slope_;
};

// x, or alpha * (exp(x) - 1) below 0.
class ELU : public Module {
 public:
  explicit ELU(float alpha = 1) : alpha_(alpha) {}
  Tensor forward(Tensor x) override { return elu(std::move(x), alpha_); }

 private:
  float alpha_;
};

// clamp(x, 0, 6).
class ReLU6 : public Module {
 public:
  Tensor forward(Tensor x) override { return clamp(std::move(x), 0, 6); }
};

// leaky_relu with a learned slope: one, or one for each place of the last axis.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t slopes = 1, float initial = 0.25f);
  Tensor forward(Tensor x) override { return prelu(std::move(x), weight); }

  Tensor weight;  // [slopes]
};

// Computes a * sigmoid(b) for the halves a, b of the axis.
class GLU : public Module {
 public:
  explicit GLU(int axis = -1) : axis_(axis) {}
  Tensor forward(Tensor x) override { return glu(std::move(x), axis_); }

 private:
  int axis_;
};

// exp(x) over its sum along the axis, and the logarithm of that.
class Softmax : public Module {
 public:
  explicit Softmax(int axis = -1) : axis_(axis) {}
  Tensor forward(Tensor x) override { return softmax(std::move(x), axis_); }

 private:
  int axis_;
};
class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int axis = -1) : axis_(axis) {}
  Tensor forward(Tensor x) override { return log_softmax(std::move(x), axis_); }

 private:
  int axis_;
};

}  // namespace rw
