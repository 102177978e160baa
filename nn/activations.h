// A module for each activation, of any shape. Its op (ops/ops.h, ops/numeric.h) says what it
// computes.
#pragma once

#include <tuple>

#include "../ops/numeric.h"
#include "../ops/ops.h"
#include "module.h"

namespace rw {

// The module around an op. It is made with the arguments that the op takes after its tensor.
template <auto op, class... Arguments>
class OpModule : public Module {
 public:
  explicit OpModule(Arguments... arguments) : arguments_(std::move(arguments)...) {}
  Tensor forward(Tensor x) override {
    return std::apply([&](const auto&... more) { return op(std::move(x), more...); }, arguments_);
  }

 private:
  std::tuple<Arguments...> arguments_;
};
// The same along an axis, by default the last.
template <Tensor (*op)(Tensor, int)>
class AlongAxis : public OpModule<op, int> {
 public:
  explicit AlongAxis(int axis = -1) : OpModule<op, int>(axis) {}
};

using ReLU = OpModule<relu>;        // max(x, 0)
using Sigmoid = OpModule<sigmoid>;  // 1 / (1 + exp(-x))
using Tanh = OpModule<rw::tanh>;    // the hyperbolic tangent
using GELU = OpModule<gelu>;        // x times the normal distribution up to x
//! torch: GELU(approximate="tanh")
using GELUTanh = OpModule<gelu_tanh>;       // the tanh approximation of GELU
using SiLU = OpModule<silu>;                // x * sigmoid(x)
using Mish = OpModule<mish>;                // x * tanh(softplus(x))
using Softplus = OpModule<softplus>;        // log(1 + exp(x))
using Softsign = OpModule<softsign>;        // x / (1 + |x|)
using SELU = OpModule<selu>;                // elu, scaled so that it normalises itself
using Hardtanh = OpModule<hardtanh>;        // clamp(x, -1, 1)
using Hardswish = OpModule<hardswish>;      // x * hardsigmoid(x)
using Hardsigmoid = OpModule<hardsigmoid>;  // clamp(x / 6 + 1/2, 0, 1)
using LogSigmoid = OpModule<log_sigmoid>;   // log(sigmoid(x))

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

using GLU = AlongAxis<glu>;                 // a * sigmoid(b) for the halves a, b of the axis
using Softmax = AlongAxis<softmax>;         // exp(x) over its sum along the axis
using LogSoftmax = AlongAxis<log_softmax>;  // the logarithm of softmax

}  // namespace rw
