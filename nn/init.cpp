#include "nn/init.h"

#include <cmath>

#include "ops/ops.h"

namespace rw::init {

namespace {

float kaiming_std(const Tensor& weight, FanMode mode, float gain) {
  const Fans f = fans(weight.shape());
  return gain / std::sqrt(static_cast<float>(mode == FanMode::in ? f.in : f.out));
}

float xavier_std(const Tensor& weight, float gain) {
  const Fans f = fans(weight.shape());
  return gain * std::sqrt(2.0f / static_cast<float>(f.in + f.out));
}

// A uniform distribution with this standard deviation spans +- sqrt(3) times it.
void uniform_of_std_(const Tensor& weight, float std, Generator& generator) {
  const float bound = std::sqrt(3.0f) * std;
  uniform_(weight, -bound, bound, generator);
}

}  // namespace

template <>
bool& SkipInit::flag() {
  thread_local bool is_on = false;
  return is_on;
}

template <>
bool& HostParameters::flag() {
  thread_local bool is_on = false;
  return is_on;
}

template <>
bool& WithoutWeights::flag() {
  thread_local bool is_on = false;
  return is_on;
}

MemoryPlace weight_place() {
  return HostParameters::is_active() ? MemoryPlace::host : context().place;
}

void zeros_(const Tensor& t) {
  constant_(t, 0);
}
void ones_(const Tensor& t) {
  constant_(t, 1);
}
void constant_(const Tensor& t, float value) {
  fill_(t, value);
}

void uniform_(Tensor t, float low, float high, Generator& generator) {
  if (!SkipInit::is_active()) t.copy_(rand(t.shape(), low, high, t.dtype(), generator));
}

void normal_(Tensor t, float mean, float std, Generator& generator) {
  if (!SkipInit::is_active()) t.copy_(randn(t.shape(), mean, std, t.dtype(), generator));
}

Fans fans(const Shape& weight) {
  check<ShapeError>(weight.rank() >= 2, "fans", "needs a weight of at least two axes, got {}",
                    weight);
  check<ShapeError>(weight.numel() > 0, "fans", "needs a weight with elements, got {}", weight);
  return {weight.numel() / weight.at(0), weight.numel() / weight.at(-1)};
}

void uniform_by_fan_in_(const Tensor& weight, const Tensor& bias, Generator& generator) {
  const float bound = 1 / std::sqrt(static_cast<float>(fans(weight.shape()).in));
  uniform_(weight, -bound, bound, generator);
  if (bias) uniform_(bias, -bound, bound, generator);
}

float gain(Nonlinearity nonlinearity, float slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh:
      return 5.0f / 3;
    case Nonlinearity::relu:
      return relu_gain;
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      break;
  }
  return 1;
}

void kaiming_uniform_(const Tensor& weight, FanMode mode, float gain, Generator& generator) {
  uniform_of_std_(weight, kaiming_std(weight, mode, gain), generator);
}

void kaiming_normal_(const Tensor& weight, FanMode mode, float gain, Generator& generator) {
  normal_(weight, 0, kaiming_std(weight, mode, gain), generator);
}

void xavier_uniform_(const Tensor& weight, float gain, Generator& generator) {
  uniform_of_std_(weight, xavier_std(weight, gain), generator);
}

void xavier_normal_(const Tensor& weight, float gain, Generator& generator) {
  normal_(weight, 0, xavier_std(weight, gain), generator);
}

}  // namespace rw::init
