// Every public op. Functions, no methods: y = relu(x). Inputs are taken by value and let go of
// inside: the result of an inner call, or what is moved in, is freed as soon as no gradient needs
// it, not at the end of the statement, and may be overwritten. f16 inputs are computed in f32 and
// stored as f16. Binary ops broadcast as NumPy does. Their operands have one dtype, or are f16 and
// f32: then f16 is computed and stored as f32 (see promote). Numbers beside tensors:
// ops/operators.h. Images are NHWC (channels last), convolution weights OHWI, as in MLX.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "../core/autograd/tape.h"
#include "../core/base/rng.h"
#include "../core/tensor/primitives.h"
#include "../core/tensor/tensor.h"

namespace rw {

// Axes of a tensor; negative ones count from the end. ShapeError for one that it does not have, or
// that comes twice.
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
    resize(sizeof...(T));
    size_t i = 0;
    ((data()[i++] = std::forward<T>(tensors)), ...);
  }
};

// ---- making ----------------------------------------------------------------------------------
// On the default device, but for zeros_like: on that of t, with its shape and dtype. ShapeError as
// for empty().
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
Tensor zeros_like(const Tensor& t);
Tensor arange(int64_t n);  // i32: 0 .. n - 1; n <= 2^31
// Uniform in [low, high), and normal, from the generator's next counters (Philox4x32-10). f32 or
// f16, DTypeError otherwise.
Tensor rand(const Shape& shape, float low = 0, float high = 1, DType dtype = DType::f32,
            Generator& generator = default_generator());
Tensor randn(const Shape& shape, float mean = 0, float std = 1, DType dtype = DType::f32,
             Generator& generator = default_generator());

// ---- dtype and layout ------------------------------------------------------------------------
// Floats become integers toward zero, NaN 0, too large ones i32's last; u8 keeps the low 8 bits.
Tensor cast(Tensor x, DType dtype);  // the same handle if nothing changes; gradients are cast back

Tensor contiguous(Tensor x);  // dense row-major; the same handle when it is already

// x itself, known by this name to what chooses the values that recomputation keeps:
// save_ops({name}), Search::collection(), REWIND_RECOMPUTE=collection:NAME
// (jax.ad_checkpoint has the same).
Tensor checkpoint_name(Tensor x, std::string name);

// Views: no copy unless a reshape of a strided tensor needs one (flatten, squeeze and unsqueeze are
// reshapes). ShapeError where the number of elements would change.
Tensor reshape(Tensor x, const Shape& shape);
Tensor reshape(Tensor x, std::initializer_list<int64_t> shape);  // one size may be -1
Tensor flatten(Tensor x, int first = 0, int last = -1);          // axes first to last become one

// Views: other strides on the same storage, without a copy. slice has the elements begin, begin +
// step, ... below end along its axis; negative ones count from the end. ShapeError for axes and
// indices that x does not have.
Tensor transpose(Tensor x, int a, int b);    // exchanges two axes
Tensor permute(Tensor x, const Axes& axes);  // axis i of the result is axes[i] of x; each once
Tensor slice(Tensor x, int axis, int64_t begin, int64_t end, int64_t step = 1);
Tensor select(Tensor x, int axis, int64_t index);  // one slice, without the axis; -1: the last
Tensor expand(Tensor x, const Shape& shape);       // as broadcast to the shape; strides of 0
Tensor squeeze(Tensor x, int axis);                // without this axis, of size 1
Tensor unsqueeze(Tensor x, int axis);              // with a new axis of size 1 there

// The parts one after another along an axis, in which alone they differ; of one dtype. ShapeError
// otherwise, and for no parts.
Tensor concat(TensorList parts, int axis);
// The parts, of one shape, along a new axis.
Tensor stack(TensorList parts, int axis);
// Views of `size` elements along an axis each, the last one of what remains.
std::vector<Tensor> split(Tensor x, int64_t size, int axis);
// Constant padding: before[i] and after[i] elements of `value` along axis i. One size per axis, not
// negative: ShapeError.
Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           float value = 0);

// ---- elementwise (shaders/elementwise.def) -----------------------------------------------------
// y[i] = f(x[i]). Names as in PyTorch; sign, floor and ceil have gradients of 0. Of i32 and u8 neg,
// abs, square, sign, relu, clamp, floor, ceil, round and trunc give i32, the others f32.
Tensor neg(Tensor x);
Tensor abs(Tensor x);
Tensor exp(Tensor x);
Tensor log(Tensor x);
Tensor sqrt(Tensor x);
Tensor rsqrt(Tensor x);   // 1 / sqrt(x)
Tensor square(Tensor x);  // x * x
Tensor relu(Tensor x);
Tensor sigmoid(Tensor x);  // 1 / (1 + exp(-x))
Tensor tanh(Tensor x);
Tensor silu(Tensor x);       // x * sigmoid(x)
Tensor gelu(Tensor x);       // erf form
Tensor gelu_tanh(Tensor x);  // tanh approximation
Tensor softplus(Tensor x);   // log(1 + exp(x)), without overflow
Tensor sin(Tensor x);
Tensor cos(Tensor x);
Tensor erf(Tensor x);
Tensor reciprocal(Tensor x);  // 1 / x
Tensor sign(Tensor x);        // -1, 0 or 1
Tensor floor(Tensor x);
Tensor ceil(Tensor x);
Tensor hardtanh(Tensor x);  // clamp(x, -1, 1)
Tensor log1p(Tensor x);     // log(1 + x)
Tensor expm1(Tensor x);     // exp(x) - 1, exact near 0, too
Tensor tan(Tensor x);
Tensor round(Tensor x);                            // to even halfway between two; gradient 0
Tensor trunc(Tensor x);                            // toward zero; gradient 0
Tensor erfinv(Tensor x);                           // of [-1, 1] (Giles 2010)
Tensor softsign(Tensor x);                         // x / (1 + |x|)
Tensor hardsigmoid(Tensor x);                      // clamp(x / 6 + 1/2, 0, 1)
Tensor hardswish(Tensor x);                        // x * hardsigmoid(x) (Howard et al. 2019)
Tensor mish(Tensor x);                             // x * tanh(softplus(x)) (Misra 2019)
Tensor selu(Tensor x);                             // Klambauer et al. 2017
Tensor log_sigmoid(Tensor x);                      // log(sigmoid(x)), without overflow
Tensor affine(Tensor x, float a, float b);         // a * x + b
Tensor clamp(Tensor x, float low, float high);     // min(max(x, low), high): high where low > high
Tensor pow(Tensor x, float exponent);              // as pow(x, tensor) has it
Tensor leaky_relu(Tensor x, float slope = 0.01f);  // x, or slope * x below 0
Tensor elu(Tensor x, float alpha = 1);             // x, or alpha * (exp(x) - 1) below 0

// Functions of two tensors, broadcast, and promoted (below) if their dtypes differ. u8 counts as
// i32.
Tensor add(Tensor a, Tensor b);
Tensor sub(Tensor a, Tensor b);
Tensor mul(Tensor a, Tensor b);
Tensor div(Tensor a, Tensor b);  // i32: truncated toward zero
Tensor maximum(Tensor a, Tensor b);
Tensor minimum(Tensor a, Tensor b);
// a^b: NaN for a negative a and a b that is no whole number. i32 wraps; a negative power of any but
// 1 and -1 is 0.
Tensor pow(Tensor a, Tensor b);
Tensor pow(float base, Tensor exponent);
// a - b trunc(a / b), with the sign of a, and a - b floor(a / b), with that of b. By 0: NaN, i32 0.
Tensor fmod(Tensor a, Tensor b);
Tensor remainder(Tensor a, Tensor b);
Tensor logaddexp(Tensor a,
                 Tensor b);  // log(exp(a) + exp(b)), without overflow; DTypeError without a float

// Comparisons give u8 0 or 1 and no gradient. Of two tensors of any dtype, broadcast.
Tensor equal(Tensor a, Tensor b);
Tensor not_equal(Tensor a, Tensor b);
Tensor less(Tensor a, Tensor b);
Tensor less_equal(Tensor a, Tensor b);
Tensor greater(Tensor a, Tensor b);
Tensor greater_equal(Tensor a, Tensor b);
// What is not 0 is true, a NaN too.
Tensor logical_and(Tensor a, Tensor b);
Tensor logical_or(Tensor a, Tensor b);
Tensor logical_xor(Tensor a, Tensor b);
Tensor logical_not(Tensor x);
// Where the condition (u8) is not 0 an element of a, else one of b; all three broadcast.
// DTypeError.
Tensor where(Tensor condition, Tensor a, Tensor b);

// `value` where the mask (u8, broadcast to x) is not 0, x elsewhere.
Tensor masked_fill(Tensor x, Tensor mask, float value);

// ---- reductions ------------------------------------------------------------------------------
// Over `axes` (all when empty), kept as size 1 with `keepdims`. Floats add up in f32, in a fixed
// order, and give their dtype; u8 gives i32. Of nothing: 0, mean NaN, max -inf, min inf, prod 1.
Tensor sum(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor mean(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor max(Tensor x, const Axes& axes = {},
           bool keepdims = false);  // gradient: to the maxima, shared
Tensor min(Tensor x, const Axes& axes = {}, bool keepdims = false);  // as max
Tensor prod(Tensor x, const Axes& axes = {}, bool keepdims = false);
// The mean square distance from the mean; `unbiased` divides by one less than the number of
// elements.
Tensor var(Tensor x, const Axes& axes = {}, bool unbiased = false, bool keepdims = false);
// Where along the axis, which goes away, the first maximum or minimum is: i32. ShapeError where it
// is empty.
Tensor argmax(Tensor x, int axis = -1);
Tensor argmin(Tensor x, int axis = -1);
// Sums x over the axes along which `shape` was broadcast to x's shape. The sum of f16 is f32: this
// is the gradient of a broadcast, and weight gradients stay f32.
Tensor sum_to(Tensor x, const Shape& shape);

// ---- matrix products and convolution -----------------------------------------------------------
// [..., m, k] @ [..., k, n] -> [..., m, n]; leading axes broadcast. Transposed views cost no copy.
// f32, or f16 with sums in f32; both of one dtype. ShapeError, DTypeError.
Tensor matmul(Tensor a, Tensor b);
// x [..., in] @ weight [out, in]^T + bias [out] (may be undefined) -> [..., out]. As matmul.
Tensor linear(Tensor x, Tensor weight, Tensor bias = {});

// Height `h` and width `w`, or one number for both.
struct Size2d {
  int h, w;
  Size2d(int both) : h(both), w(both) {}  // NOLINT: a number is meant to do
  Size2d(int height, int width) : h(height), w(width) {}
  bool operator==(const Size2d&) const = default;
};

// What lies around an image: zeros, the image mirrored at its outermost elements, these elements,
// or the image again from its other side (PyTorch: constant, reflect, replicate, circular).
enum class PaddingMode { zeros, reflect, replicate, circular };

// The window of a convolution, in elements: its stride, the padding on every side, the dilation
// (distance of its elements).
struct Conv2dOptions {
  Size2d stride = 1, padding = 0, dilation = 1;
  int groups = 1;                          // runs of channels that are convolved apart
  bool bias = true;                        // of the module Conv2d; conv2d() takes it as a tensor
  std::optional<Size2d> padding_end = {};  // below and to the right, where it is not `padding`
  PaddingMode padding_mode = PaddingMode::zeros;  // what the padding holds
};
// x [N, H, W, C], weight [O, KH, KW, C / groups] -> [N, H', W', O], with H' = (H + 2 padding -
// dilation (KH - 1) - 1) / stride + 1, rounded down. Others: ops/network/conv.h. f32, or f16 with
// sums in f32. ShapeError where shapes do not go together or the window is larger than the padded
// image; ValueError for options.
Tensor conv2d(Tensor x, Tensor weight, const Conv2dOptions& options = {});
// The same plus bias [O] (may be undefined), which is added in place; its gradient is f32.
Tensor conv2d(Tensor x, Tensor weight, Tensor bias, const Conv2dOptions& options);
Tensor conv2d(Tensor x, Tensor weight, std::same_as<Tensor> auto bias) {
  return conv2d(std::move(x), std::move(weight), std::move(bias), Conv2dOptions());
}

// The window of a pooling op: its kernel, stride, padding (at most half the kernel) and dilation (1
// for avg_pool2d), as of Conv2dOptions. ValueError otherwise.
struct Pool2dOptions {
  Size2d kernel = 2, stride = 2, padding = 0, dilation = 1;
  bool count_include_pad = true;  // of avg_pool2d: the padding counts as zeros
};
// x [N, H, W, C] -> [N, H', W', C], sizes as of conv2d: the largest of each window, or its mean.
// The padding never is a maximum; the gradient goes to the first one. f32 or f16.
Tensor max_pool2d(Tensor x, const Pool2dOptions& options);
Tensor avg_pool2d(Tensor x, const Pool2dOptions& options);

// ---- normalisation, losses, indexing, random ---------------------------------------------------
// Indices, targets and lengths out of range never touch memory that is not theirs; what they give
// is said at each op. With REWIND_CHECK_INDICES=1 in the environment the ops read them first, which
// waits for the device, and throw ValueError naming op, position and value.

// Statistics of a batch, or of a part of one.
struct BatchStatistics {
  Tensor mean, var;  // [C] f32; the variance is biased
  int64_t rows;      // values per channel
};
// The statistics of x [..., C] over all axes but the last, without a gradient. ShapeError if x is
// empty.
BatchStatistics batch_statistics(const Tensor& x);
// The statistics of all parts together (Chan et al. 1979), in their order. ShapeError without any
// part, or if channels differ.
BatchStatistics combine_statistics(const std::vector<BatchStatistics>& parts);

// What a batch norm keeps for evaluation, f32 [C] each.
struct RunningStatistics {
  Tensor mean, var;  // the variance is the unbiased one
  float momentum;    // the weight of a new batch
};
// Moves the running statistics towards those of a batch. ValueError: momentum outside [0, 1].
void update_running(const RunningStatistics& running, const BatchStatistics& batch);

// What joins a batch that is normalised in parts: over devices (PyTorch's SyncBatchNorm), or over
// micro-batches. Every part makes the same calls in the same order: rows() and combine() once per
// batch_norm(), sum() once per gradient. Where a checkpoint replays it, the record has the
// statistics.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  // All parts' rows from this part's.
  virtual int64_t rows(int64_t own) = 0;
  // All parts' statistics from this part's: combine_statistics(), in an order that all parts share.
  virtual BatchStatistics combine(BatchStatistics own) = 0;
  // All parts' sums from this part's [2, C] f32: of dy * xhat and of dy.
  virtual Tensor sum(Tensor own) = 0;
  // Takes the statistics that combine() gave into running ones, which parts may share.
  virtual void update(const RunningStatistics& running, const BatchStatistics& batch) {
    update_running(running, batch);
  }
};

// What batch_norm() gives.
struct BatchNormResult {
  Tensor y, mean, var;  // var is biased; mean and var carry no gradient
  int64_t rows;         // values per channel that mean and var are of
};
// y = (x - mean) / sqrt(var + eps) * weight + bias for x [..., C], statistics over all axes but the
// last, in f32. weight, bias [C] f32. ShapeError; ValueError where eps is negative or not finite.
// With an exchange the statistics are those of all parts, `rows` of them (otherwise of x), and the
// gradient of x is that of the whole batch; weight's and bias's are this part's share, to be added
// up as all gradients are.
BatchNormResult batch_norm(Tensor x, Tensor weight, Tensor bias, float eps = 1e-5f,
                           std::shared_ptr<StatisticsExchange> exchange = {});
// The same with given statistics [C] f32 (evaluation).
Tensor batch_norm_with(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias,
                       float eps = 1e-5f);

// Over the last axis, in f32. weight, bias [C] f32; undefined: 1, 0. C <= 65536. eps as above.
Tensor layer_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);
// x / sqrt(mean(x * x) + eps) * weight, over the last axis (Zhang and Sennrich 2019). As
// layer_norm.
Tensor rms_norm(Tensor x, Tensor weight = {}, float eps = 1e-6f);
// x [N, ..., C]: over everything but N within each of `groups` runs of channels, groups of any
// size (Wu and He 2018). weight, bias [C] f32; undefined: 1 and 0. ShapeError unless the groups
// divide C, and for an empty x.
Tensor group_norm(Tensor x, int64_t groups, Tensor weight = {}, Tensor bias = {},
                  float eps = 1e-5f);

// group_norm with a group per channel, whose statistics need more than one element (ShapeError).
Tensor instance_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);

// What lstm() gives.
struct LstmResult {
  Tensor y, c;  // y [T, N, H]: the outputs; c [N, H] f32: the state after the last step
};
// One layer and direction of a recurrent network over T steps, PyTorch's cells and order of gates.
// gates [T, N, 4 H] (GRU: 3 H) = W_ih x + b_ih; weight_hh [4 H, H]; bias_hh [4 H] f32 or undefined;
// h0 [N, H]; c0 [N, H] f32. `reverse` goes from the last step to the first; y [T, N, H] stays in
// order. ShapeError, and DTypeError where weight_hh is not of the gates' dtype.
LstmResult lstm(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, Tensor c0,
                bool reverse = false);
Tensor gru(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, bool reverse = false);

// Running sums and products along an axis, of f32, f16 (in f32) or i32, and logarithms of running
// sums of exp(x), of floats, without overflow; `reverse`: from its end.
Tensor cumsum(Tensor x, int axis, bool reverse = false);
Tensor cumprod(Tensor x, int axis, bool reverse = false);
Tensor logcumsumexp(Tensor x, int axis, bool reverse = false);
// exp(x) over its sum along the axis, and the logarithm of that, without overflow. f32 or f16.
Tensor softmax(Tensor x, int axis = -1);
Tensor log_softmax(Tensor x, int axis = -1);

// What attention() does with the scores.
struct AttentionOptions {
  float scale = 0;      // of the scores; 0: 1 / sqrt(D)
  bool causal = false;  // query i looks at keys 0 .. i only
  float dropout = 0;    // probability that a weight of the softmax becomes 0; the others grow
  Generator* generator = nullptr;  // of the dropout; null: the default one
  int64_t window = 0;  // query i looks at keys closer than this only: |i - j| < window; 0: all
  bool lower_right = false;  // the last query stands at the last key, not the first at the first: i
                             // counts as i + T - S (PyTorch's causal_lower_right; caches of keys)
  Tensor alibi = {};  // slopes, f32 [H] or [B, H]: -slope * |i - j| is added (Press et al. 2022)
};
// softmax(scale * q k^T + mask) v without the [S, T] matrix in memory: q [B, H, S, D], k and v [B,
// K, T, D], D <= 256, views welcome -> [B, H, S, D], a view of [B, S, H, D]: merging the heads is
// free. K divides H: so many query heads in a row share a head of k and v (Ainslie et al. 2023).
// mask: f32, broadcasts to [B, H, S, T] along all axes but the last, added; its gradient is summed
// over what was broadcast. lengths [B] i32, 0 to T: keys from there on, even NaN, do not count, nor
// do scores below -1e38; a row without any other gives zeros. f32 or f16, of one dtype
// (DTypeError); ShapeError for sizes, ValueError for options and lengths, and for a mask beside
// slopes; AutogradError for slopes that require a gradient. CPU drivers bound S and T (ShapeError).
// The method: Dao et al. 2022, "FlashAttention".
Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options = {},
                 Tensor mask = {}, Tensor lengths = {});

// table [V, D], index (i32, of rank 5 at most) -> index.shape + [D]. Repeated indices add up in
// order. An index outside [0, V) gives NaN (-1 where the table is i32) and no gradient to any row.
// The row `padding` gets no gradient.
Tensor embedding(Tensor table, Tensor index, std::optional<int32_t> padding = {});

// Zeroes elements with probability p, in [0, 1) (ValueError), and scales the rest by 1 / (1 - p).
Tensor dropout(Tensor x, float p, Generator& generator = default_generator());

// Casts so that both have one dtype, the later of u8, i32, f16, f32, as PyTorch promotes.
void promote(Tensor& a, Tensor& b);

}  // namespace rw
