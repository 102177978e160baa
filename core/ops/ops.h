// Every public op. Functions, no methods: y = relu(x). Inputs are taken by value and let go of
// inside: the result of an inner call, or what is moved in, is freed as soon as no gradient needs
// it, not at the end of the statement, and may be overwritten. f16 inputs are computed in f32 and
// stored as f16. Binary ops broadcast as NumPy does. Their operands have one dtype, or are f16 and
// f32: then f16 is computed and stored as f32 (see promote). Numbers beside tensors:
// core/ops/operators.h. Images are NHWC (channels last), convolution weights OHWI, as in MLX.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "rewind/core/autograd/tape.h"
#include "rewind/core/base/rng.h"
#include "rewind/core/tensor/primitives.h"
#include "rewind/core/tensor/tensor.h"

namespace rw {

using Axes = std::vector<int>;

// Tensors in braces, concat({a, relu(b)}, 1), or in a vector. Unlike an initializer_list it keeps
// no second handle on them.
class TensorList : public std::vector<Tensor> {
 public:
  TensorList() = default;
  TensorList(std::vector<Tensor> list) : std::vector<Tensor>(std::move(list)) {}
  template <class... T>
  requires(sizeof...(T) > 0 && (std::derived_from<std::remove_cvref_t<T>, Tensor> && ...))
      TensorList(T&&... tensors) {
    reserve(sizeof...(T));
    (push_back(std::forward<T>(tensors)), ...);
  }
};

// ---- making ----------------------------------------------------------------------------------
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
Tensor zeros_like(const Tensor& t);
Tensor arange(int64_t n);  // i32: 0 .. n - 1; n <= 2^31
// Uniform in [low, high) and normal, from the generator's next counters.
Tensor rand(const Shape& shape, float low = 0, float high = 1, DType dtype = DType::f32,
            Generator& generator = default_generator());
Tensor randn(const Shape& shape, float mean = 0, float std = 1, DType dtype = DType::f32,
             Generator& generator = default_generator());

// ---- dtype and layout ------------------------------------------------------------------------
Tensor cast(Tensor x, DType dtype);  // the same handle when nothing changes
Tensor contiguous(Tensor x);         // dense row-major; the same handle when it is already

// x itself, known by this name to what chooses the values that recomputation keeps:
// save_ops({name}), RecomputeSearch::collection(), REWIND_RECOMPUTE=collection:NAME
// (jax.ad_checkpoint has the same).
Tensor checkpoint_name(Tensor x, std::string name);

// Views: no copy unless a reshape of a strided tensor needs one.
Tensor reshape(Tensor x, const Shape& shape);
Tensor reshape(Tensor x, std::initializer_list<int64_t> shape);  // one size may be -1
Tensor flatten(Tensor x, int first = 0, int last = -1);
Tensor transpose(Tensor x, int a, int b);
Tensor permute(Tensor x, const Axes& axes);
Tensor slice(Tensor x, int axis, int64_t begin, int64_t end, int64_t step = 1);
Tensor select(Tensor x, int axis, int64_t index);  // one slice, without the axis
Tensor expand(Tensor x, const Shape& shape);       // broadcast view
Tensor squeeze(Tensor x, int axis);
Tensor unsqueeze(Tensor x, int axis);

Tensor concat(TensorList parts, int axis);
Tensor stack(TensorList parts, int axis);
std::vector<Tensor> split(Tensor x, int64_t size, int axis);
// Constant padding: before[i] and after[i] elements along axis i.
Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           float value = 0);

// ---- elementwise (shaders/elementwise.def) -----------------------------------------------------
Tensor neg(Tensor x);
Tensor abs(Tensor x);
Tensor exp(Tensor x);
Tensor log(Tensor x);
Tensor sqrt(Tensor x);
Tensor rsqrt(Tensor x);
Tensor square(Tensor x);
Tensor relu(Tensor x);
Tensor sigmoid(Tensor x);
Tensor tanh(Tensor x);
Tensor silu(Tensor x);
Tensor gelu(Tensor x);       // erf form
Tensor gelu_tanh(Tensor x);  // tanh approximation
Tensor softplus(Tensor x);
Tensor sin(Tensor x);
Tensor cos(Tensor x);
Tensor erf(Tensor x);
Tensor reciprocal(Tensor x);
Tensor sign(Tensor x);
Tensor floor(Tensor x);
Tensor ceil(Tensor x);
Tensor hardtanh(Tensor x);
Tensor log1p(Tensor x);
Tensor affine(Tensor x, float a, float b);  // a * x + b
Tensor clamp(Tensor x, float low, float high);
Tensor pow(Tensor x, float exponent);  // x > 0, or NaN
Tensor leaky_relu(Tensor x, float slope = 0.01f);
Tensor elu(Tensor x, float alpha = 1);

Tensor add(Tensor a, Tensor b);
Tensor sub(Tensor a, Tensor b);
Tensor mul(Tensor a, Tensor b);
Tensor div(Tensor a, Tensor b);
Tensor maximum(Tensor a, Tensor b);
Tensor minimum(Tensor a, Tensor b);

// Comparisons give u8 0 or 1 and no gradient.
Tensor equal(Tensor a, Tensor b);
Tensor not_equal(Tensor a, Tensor b);
Tensor less(Tensor a, Tensor b);
Tensor less_equal(Tensor a, Tensor b);
Tensor greater(Tensor a, Tensor b);
Tensor greater_equal(Tensor a, Tensor b);
Tensor where(Tensor condition, Tensor a, Tensor b);  // condition u8

// ---- reductions ------------------------------------------------------------------------------
// Over `axes` (all when empty). f32 and f16 accumulate in f32.
Tensor sum(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor mean(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor max(Tensor x, const Axes& axes = {},
           bool keepdims = false);  // gradient: to the maxima, shared
Tensor min(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor prod(Tensor x, const Axes& axes = {}, bool keepdims = false);  // x != 0 for gradients
Tensor var(Tensor x, const Axes& axes = {}, bool unbiased = false, bool keepdims = false);
Tensor argmax(Tensor x, int axis = -1);  // i32, the first maximum
Tensor argmin(Tensor x, int axis = -1);
// Sums x over the axes along which `shape` was broadcast to x's shape. The sum of f16 is f32: this
// is the gradient of a broadcast, and weight gradients stay f32.
Tensor sum_to(Tensor x, const Shape& shape);

// ---- matrix products and convolution -----------------------------------------------------------
// [..., m, k] @ [..., k, n] -> [..., m, n]; leading axes broadcast. Transposed views cost no copy.
Tensor matmul(Tensor a, Tensor b);
// x [..., in] @ weight [out, in]^T + bias [out] (may be undefined).
Tensor linear(Tensor x, Tensor weight, Tensor bias = {});

// Height and width, or one number for both.
struct Size2d {
  int h, w;
  Size2d(int both) : h(both), w(both) {}  // NOLINT: a number is meant to do
  Size2d(int height, int width) : h(height), w(width) {}
  bool operator==(const Size2d&) const = default;
};

struct Conv2dOptions {
  Size2d stride = 1, padding = 0, dilation = 1;
  int groups = 1;
  bool bias = true;  // of the module Conv2d; conv2d() takes it as a tensor
};
// x [N, H, W, C], weight [O, KH, KW, C / groups] -> [N, H', W', O].
Tensor conv2d(Tensor x, Tensor weight, const Conv2dOptions& options = {});
// The same plus bias [O] (may be undefined), which is added in place; its gradient is f32.
Tensor conv2d(Tensor x, Tensor weight, Tensor bias, const Conv2dOptions& options);
Tensor conv2d(Tensor x, Tensor weight, std::same_as<Tensor> auto bias) {
  return conv2d(std::move(x), std::move(weight), std::move(bias), Conv2dOptions());
}

struct Pool2dOptions {
  Size2d kernel = 2, stride = 2, padding = 0, dilation = 1;
  bool count_include_pad = true;  // of avg_pool2d: the padding counts as zeros
};
Tensor max_pool2d(Tensor x, const Pool2dOptions& options);
Tensor avg_pool2d(Tensor x, const Pool2dOptions& options);

// ---- normalisation, losses, indexing, random ---------------------------------------------------
// Indices, targets and lengths out of range never touch memory that is not theirs; what they give
// is said at each op. With REWIND_CHECK_INDICES=1 in the environment the ops read them first, which
// waits for the device, and throw ValueError naming op, position and value.
struct BatchNormResult {
  Tensor y, mean, var;  // var is biased; mean and var carry no gradient
};
// Statistics over all axes but the last. weight, bias [C] f32.
BatchNormResult batch_norm(Tensor x, Tensor weight, Tensor bias, float eps = 1e-5f);
// The same with given statistics (evaluation).
Tensor batch_norm_with(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias,
                       float eps = 1e-5f);

// Over the last axis, statistics in f32. weight, bias [C] f32; undefined: 1 and 0. C <= 65536.
Tensor layer_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);
Tensor rms_norm(Tensor x, Tensor weight = {}, float eps = 1e-6f);
// x [N, ..., C]: over everything but N within each of `groups` runs of channels, groups of any
// size. weight, bias [C] f32; undefined: 1 and 0.
Tensor group_norm(Tensor x, int64_t groups, Tensor weight = {}, Tensor bias = {},
                  float eps = 1e-5f);

// group_norm with a group per channel, whose statistics need more than one element (ShapeError).
Tensor instance_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);

// One layer and direction of a recurrent network over T steps, PyTorch's cells and order of gates.
// gates [T, N, 4 H] (GRU: 3 H) = W_ih x + b_ih; weight_hh [4 H, H]; bias_hh [4 H] f32 or undefined;
// h0 [N, H]; c0 [N, H] f32. `reverse` goes from the last step to the first; y [T, N, H] stays in
// order.
struct LstmResult {
  Tensor y, c;  // c [N, H] f32: the state after the last step
};
LstmResult lstm(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, Tensor c0,
                bool reverse = false);
Tensor gru(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, bool reverse = false);

// Running sums along an axis, of f32, f16 (summed in f32) or i32; `reverse`: from its end.
Tensor cumsum(Tensor x, int axis, bool reverse = false);
Tensor softmax(Tensor x, int axis = -1);
Tensor log_softmax(Tensor x, int axis = -1);

struct AttentionOptions {
  float scale = 0;      // of the scores; 0: 1 / sqrt(D)
  bool causal = false;  // query i looks at keys 0 .. i only
  float dropout = 0;    // probability that a weight of the softmax becomes 0; the others grow
  Generator* generator = nullptr;  // of the dropout; null: the default one
};
// softmax(scale * q k^T + mask) v without the [S, T] matrix in memory: q [B, H, S, D], k and v [B,
// H, T, D], D <= 256, views welcome -> [B, H, S, D], a view of [B, S, H, D]: merging the heads is
// free. mask: f32, broadcasts to [B, H, S, T], added; it gets no gradient. lengths [B] i32, 0 to T:
// keys from there on do not count. Scores below -1e38 do not count either; a row without any other
// gives zeros.
Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options = {},
                 Tensor mask = {}, Tensor lengths = {});

enum class Reduction { none, mean, sum };
struct CrossEntropyOptions {
  float label_smoothing = 0;
  int ignore_index = -100;
  Reduction reduction = Reduction::mean;  // mean over the targets that are not ignored
};
// logits [N, C], target [N] i32 -> f32 scalar or [N]. A target that is neither a class nor
// ignore_index gives a loss and gradients of NaN.
Tensor cross_entropy(Tensor logits, Tensor target, const CrossEntropyOptions& options = {});

struct TiedCrossEntropyOptions {
  float label_smoothing = 0;
  int ignore_index = -100;
  int64_t chunk = 0;  // rows whose logits exist at a time; 0: about 32 MiB of them
};
// cross_entropy(linear(hidden, table, bias), target), the mean, without the [N, V] logits in
// memory: they are made chunk by chunk, and again for the gradient. hidden [N, H], table [V, H],
// bias [V] or undefined, target [N] i32. `predicted` receives the largest logit's class per row,
// [N] i32.
Tensor tied_cross_entropy(Tensor hidden, Tensor table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& options = {}, Tensor* predicted = nullptr);
Tensor mse_loss(Tensor x, Tensor target);

// table [V, D], index (any shape, i32) -> index.shape + [D]. Repeated indices add up in order. An
// index outside [0, V) gives NaN (-1 where the table is i32) and no gradient to any row.
Tensor embedding(Tensor table, Tensor index);

// Zeroes elements with probability p and scales the rest by 1 / (1 - p).
Tensor dropout(Tensor x, float p, Generator& generator = default_generator());

// Casts so that both have one dtype: f32 wins over f16.
void promote(Tensor& a, Tensor& b, const char* op);

}  // namespace rw
