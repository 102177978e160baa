// Initial values of parameters. All draw from a counter-based generator: a seed gives the same
// model on every run. Weights are [out, ..., in] (linear, OHWI convolution).
#pragma once

#include <utility>

#include "../core/base/rng.h"
#include "../core/tensor/tensor.h"

namespace rw::init {

// A setting of this thread's new modules while it lives.
template <int which>
class [[nodiscard]] InitScope {
 public:
  explicit InitScope(bool on = true) : before_(std::exchange(flag(), flag() || on)) {}
  ~InitScope() { flag() = before_; }
  InitScope(const InitScope&) = delete;
  InitScope& operator=(const InitScope&) = delete;

  static bool is_active() { return flag(); }  // on this thread

 private:
  static bool& flag();
  bool before_;
};
template <>
bool& InitScope<0>::flag();
template <>
bool& InitScope<1>::flag();
template <>
bool& InitScope<2>::flag();

// uniform_() and normal_(), and all that draw by them, leave tensors as they are: for models whose
// values are loaded next, as torch.nn.utils.skip_init.
using SkipInit = InitScope<0>;
// Parameters lie in host memory until an optimizer takes them: for models that the device cannot
// hold (offload_parameters).
using HostParameters = InitScope<1>;
// Linear and Embedding have no weights: for models whose matrices come in another form, as blocks
// do (nn/adapters/block_layers.h). Each then needs a substitute, or restore_weight().
using WithoutWeights = InitScope<2>;
// Where a new module's weights lie: as HostParameters says, or else where other values do.
MemoryPlace weight_place();

// Sets every element to one number.
void zeros_(const Tensor& t);
void ones_(const Tensor& t);
void constant_(const Tensor& t, float value);
// Uniform in [low, high), and normal. f32, f16 or bf16.
void uniform_(Tensor t, float low, float high, Generator& generator = default_generator());
void normal_(Tensor t, float mean, float std, Generator& generator = default_generator());

// The number of inputs over which each output element sums (`in`), and of outputs to which each
// input element contributes (`out`).
struct Fans {
  int64_t in, out;
};
// The fans of a weight [out, ..., in]. ShapeError for fewer than two axes, or without elements.
Fans fans(const Shape& weight);

// PyTorch's default for linear layers and convolutions: both uniform within 1 / sqrt(fan in of the
// weight). The bias may be undefined.
void uniform_by_fan_in_(const Tensor& weight, const Tensor& bias,
                        Generator& generator = default_generator());

// The function after a layer: linear (none), sigmoid, tanh, relu, leaky_relu.
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu };
// Returns the factor that keeps the variance through the nonlinearity; `slope` is leaky_relu's.
float gain(Nonlinearity nonlinearity, float slope = 0.01f);

// The fan whose variance is kept: in (of activations in forward) or out (of gradients in backward).
enum class FanMode { in, out };
inline constexpr float relu_gain = 1.41421356f;  // gain(Nonlinearity::relu)
// He et al. 2015: standard deviation gain / sqrt(fan), mean 0.
void kaiming_uniform_(const Tensor& weight, FanMode mode = FanMode::in, float gain = relu_gain,
                      Generator& generator = default_generator());
void kaiming_normal_(const Tensor& weight, FanMode mode = FanMode::in, float gain = relu_gain,
                     Generator& generator = default_generator());

// Glorot and Bengio 2010: standard deviation gain * sqrt(2 / (fan in + fan out)), mean 0.
void xavier_uniform_(const Tensor& weight, float gain = 1,
                     Generator& generator = default_generator());
void xavier_normal_(const Tensor& weight, float gain = 1,
                    Generator& generator = default_generator());

}  // namespace rw::init
