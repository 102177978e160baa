// The public ops. They are functions, not methods: y = relu(x). They take inputs by value and
// release them inside: the result of an inner call, or a tensor that is moved in, is freed as soon
// as no gradient needs it, not at the end of the statement, and may be overwritten. f16 inputs are
// computed in f32 and stored as f16. Binary ops broadcast as NumPy does. Their operands have one
// dtype, or are f16 and f32: then f16 is computed and stored as f32 (see promote). Operators and
// numbers beside tensors are in ops/operators.h. Images are NHWC (channels last), and convolution
// weights OHWI, as in MLX.
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
#include "elementwise/rows.h"

namespace rw {

// Axes of a tensor; negative ones count from the end. ShapeError for an axis that the tensor does
// not have, or that occurs twice.
using Axes = std::vector<int>;

// Tensors in braces, concat({a, relu(b)}, 1), or in a vector. Unlike an initializer_list, it keeps
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
//! op: zeros ones   in: none   order: 0
// These allocate on the default device, except zeros_like, which uses the device, shape and dtype
// of t. ShapeError as for empty().
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor ones(const Shape& shape, DType dtype = DType::f32);
//! op: zeros_like   in: any   order: 0
Tensor zeros_like(const Tensor& t);
//! op: arange   in: none   order: 0
Tensor arange(int64_t n);  // i32: 0 .. n - 1; n <= 2^31
//! op: rand randn   in: none   order: 0
// Uniform values in [low, high), and normal ones, from the generator's next counters
// (Philox4x32-10). f32 or f16, DTypeError otherwise.
Tensor rand(const Shape& shape, float low = 0, float high = 1, DType dtype = DType::f32,
            Generator& generator = default_generator());
Tensor randn(const Shape& shape, float mean = 0, float std = 1, DType dtype = DType::f32,
             Generator& generator = default_generator());

// ---- dtype and layout ------------------------------------------------------------------------
//! op: cast   torch: to   in: any
// Casts floats to integers toward zero; NaN becomes 0, and values out of range the nearest i32. u8
// keeps the low 8 bits.
Tensor cast(Tensor x, DType dtype);  // the same handle if nothing changes; gradients are cast back

//! op: contiguous   in: any
Tensor contiguous(Tensor x);  // dense row-major; the same handle if it is so already

//! op: checkpoint_name checkpoint_keep   torch: none   in: any
// Returns x itself and gives it a name for choosing the values that recomputation keeps:
// save_ops({name}), Search::collection(), REWIND_RECOMPUTE=collection:NAME (as
// jax.ad_checkpoint.checkpoint_name).
Tensor checkpoint_name(Tensor x, std::string name);
// The same value, which checkpoint segments keep: for one that no replay can make again, since the
// program writes into what it was made of (a table of embeddings whose rows are scaled, a cache).
Tensor checkpoint_keep(Tensor x);

//! op: reshape - flatten   in: any
// These return views, without a copy unless a strided tensor must be reshaped (flatten, squeeze and
// unsqueeze are reshapes). ShapeError if the number of elements would change.
Tensor reshape(Tensor x, const Shape& shape);
Tensor reshape(Tensor x, std::initializer_list<int64_t> shape);  // one size may be -1
Tensor flatten(Tensor x, int first = 0, int last = -1);          // axes first to last become one

//! op: transpose permute   in: any
// These return views with other strides on the same storage, without a copy. slice takes the
// elements begin, begin + step, ... below end along its axis; negative numbers count from the end.
// ShapeError for axes and indices that x does not have.
Tensor transpose(Tensor x, int a, int b);    // exchanges two axes
Tensor permute(Tensor x, const Axes& axes);  // axis i of the result is axes[i] of x; each once
//! op: slice   torch: Tensor.__getitem__   in: any
Tensor slice(Tensor x, int axis, int64_t begin, int64_t end, int64_t step = 1);
//! op: select expand squeeze unsqueeze   in: any
Tensor select(Tensor x, int axis, int64_t index);  // one slice, without the axis; -1: the last
Tensor expand(Tensor x, const Shape& shape);       // as broadcast to the shape; strides of 0
Tensor squeeze(Tensor x, int axis);                // without this axis, of size 1
Tensor unsqueeze(Tensor x, int axis);              // with a new axis of size 1 there

//! op: concat   torch: cat   autocast: keep   in: any
// Joins parts of one dtype along an axis; they may differ only along it. ShapeError otherwise, and
// without parts.
Tensor concat(TensorList parts, int axis);
//! op: stack   in: any
// Joins parts of one shape along a new axis.
Tensor stack(TensorList parts, int axis);
//! op: split   in: any
// Splits x into views of `size` elements along an axis; the last one has what remains.
std::vector<Tensor> split(Tensor x, int64_t size, int axis);
//! op: pad   in: any
// Pads with a constant: before[i] and after[i] elements of `value` along axis i. There must be one
// size per axis, and none may be negative: ShapeError.
Tensor pad(Tensor x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           float value = 0);

// ---- elementwise -----------------------------------------------------------------------------
// Functions of one tensor that have numbers, beside those of ops/elementwise/rows.h.
//! op: affine   torch: none   autocast: keep   in: any
Tensor affine(Tensor x, float a, float b);  // a * x + b
//! op: clamp leaky_relu elu   autocast: keep   in: any
Tensor clamp(Tensor x, float low, float high);     // min(max(x, low), high): high if low > high
Tensor leaky_relu(Tensor x, float slope = 0.01f);  // x, or slope * x below 0
Tensor elu(Tensor x, float alpha = 1);             // x, or alpha * (exp(x) - 1) below 0
//! op: pow_scalar   torch: pow   autocast: pow   in: any
Tensor pow(Tensor x, float exponent);  // as in pow(x, tensor)
//! op: pow_base   torch: pow
Tensor pow(float base, Tensor exponent);  // likewise; in the dtype of the exponent
//! op: logical_not   in: any   order: 0
Tensor logical_not(Tensor x);  // 1 where x is 0, in u8

//! op: where   in: any
// Takes an element of a where the condition (u8) is not 0, else one of b; all three broadcast.
// DTypeError.
Tensor where(Tensor condition, Tensor a, Tensor b);

//! op: masked_fill   in: any
// Puts `value` where the mask (u8, broadcast to x) is not 0, and keeps x elsewhere.
Tensor masked_fill(Tensor x, Tensor mask, float value);

// ---- reductions ------------------------------------------------------------------------------
//! op: sum   autocast: f32   in: any
// Reductions over `axes` (all axes if empty), which stay with size 1 if `keepdims`. Floats add up
// in f32, in a fixed order, and keep their dtype; u8 gives i32. An empty reduction gives 0, for
// mean NaN, max -inf, min inf, prod 1.
Tensor sum(Tensor x, const Axes& axes = {}, bool keepdims = false);
//! op: mean   autocast: keep
Tensor mean(Tensor x, const Axes& axes = {}, bool keepdims = false);
//! op: max   torch: amax   in: any
Tensor max(Tensor x, const Axes& axes = {},
           bool keepdims = false);  // gradient: to the maxima, shared
//! op: min   torch: amin   in: any
Tensor min(Tensor x, const Axes& axes = {}, bool keepdims = false);  // as for max
//! op: prod   autocast: f32   in: any
Tensor prod(Tensor x, const Axes& axes = {}, bool keepdims = false);
//! op: var   autocast: f32
// The mean square distance from the mean; `unbiased` divides by one less than the number of
// elements.
Tensor var(Tensor x, const Axes& axes = {}, bool unbiased = false, bool keepdims = false);
//! op: argmax argmin   in: any   order: 0
// The index (i32) of the first maximum or minimum along the axis, which is removed. ShapeError if
// the axis is empty.
Tensor argmax(Tensor x, int axis = -1);
Tensor argmin(Tensor x, int axis = -1);
//! op: sum_to   torch: sum_to_size   in: any
// Sums x over the axes along which `shape` was broadcast to x's shape. The sum of f16 is f32: this
// is the gradient of broadcasting, and weight gradients stay f32.
Tensor sum_to(Tensor x, const Shape& shape);

// ---- matrix products and convolution -----------------------------------------------------------
//! op: matmul   autocast: low
// [..., m, k] @ [..., k, n] -> [..., m, n]; leading axes broadcast. A vector [k] is one row on the
// left and one column on the right, whose axis the result lacks. Transposed views cost no copy.
// Both are f32, or f16 with sums in f32, of one dtype. ShapeError, DTypeError.
Tensor matmul(Tensor a, Tensor b);
//! op: linear   autocast: low
// x [..., in] @ weight [out, in]^T + bias [out] (may be undefined) -> [..., out]. As matmul.
Tensor linear(Tensor x, Tensor weight, Tensor bias = {});

// Height `h` and width `w`, or one number for both.
struct Size2d {
  int h, w;
  Size2d(int both) : h(both), w(both) {}  // NOLINT: a number is meant to do
  Size2d(int height, int width) : h(height), w(width) {}
  bool operator==(const Size2d&) const = default;
};

// The values around an image: zeros, the image mirrored at its outermost elements, these elements
// repeated, or the image again from its other side (PyTorch: constant, reflect, replicate,
// circular).
enum class PaddingMode { zeros, reflect, replicate, circular };

// The window of a convolution, in elements: its stride, the padding on every side, and the dilation
// (the distance between its elements).
struct Conv2dOptions {
  Size2d stride = 1, padding = 0, dilation = 1;
  int groups = 1;                          // runs of channels that are convolved apart
  bool bias = true;                        // of the module Conv2d; conv2d() takes it as a tensor
  std::optional<Size2d> padding_end = {};  // below and to the right, if it differs from `padding`
  PaddingMode padding_mode = PaddingMode::zeros;  // the values of the padding
};
//! op: - conv2d -   autocast: low
// x [N, H, W, C], weight [O, KH, KW, C / groups] -> [N, H', W', O], with H' = (H + 2 padding -
// dilation (KH - 1) - 1) / stride + 1, rounded down. ops/network/conv.h has other convolutions.
// f32, or f16 with sums in f32. ShapeError if the shapes do not match or the window is larger than
// the padded image; ValueError for options.
Tensor conv2d(Tensor x, Tensor weight, const Conv2dOptions& options = {});
// The same plus bias [O] (may be undefined), which is added in place; its gradient is f32.
Tensor conv2d(Tensor x, Tensor weight, Tensor bias, const Conv2dOptions& options);
Tensor conv2d(Tensor x, Tensor weight, std::same_as<Tensor> auto bias) {
  return conv2d(std::move(x), std::move(weight), std::move(bias), Conv2dOptions());
}

// The window of a pooling op: its kernel, stride, padding (at most half the kernel) and dilation (1
// for avg_pool2d), as in Conv2dOptions. ValueError otherwise.
struct Pool2dOptions {
  Size2d kernel = 2, stride = 2, padding = 0, dilation = 1;
  bool count_include_pad = true;  // of avg_pool2d: the padding counts as zeros
};
//! op: max_pool2d avg_pool2d
// x [N, H, W, C] -> [N, H', W', C], with sizes as for conv2d: the largest element of each window,
// or its mean. Padding is never a maximum, and the gradient goes to the first maximum. f32 or f16.
Tensor max_pool2d(Tensor x, const Pool2dOptions& options);
Tensor avg_pool2d(Tensor x, const Pool2dOptions& options);

// ---- normalisation, losses, indexing, random ---------------------------------------------------
// Indices, targets and lengths out of range touch only their own memory; each op says what they
// give. With REWIND_CHECK_INDICES=1 in the environment the ops read them first, which waits for the
// device, and throw a ValueError that names op, position and value.

// Statistics of a batch, or of a part of one.
struct BatchStatistics {
  Tensor mean, var;  // [C] f32; the variance is biased
  int64_t rows;      // values per channel
  Tensor rest = {};  // the true mean less the rounded one, [C] f32; undefined: 0
};
//! op: - -
// The statistics of x [..., C] over all axes but the last, without a gradient. ShapeError if x is
// empty.
BatchStatistics batch_statistics(const Tensor& x);
// The statistics of all parts together (Chan et al. 1979), in their order. ShapeError without any
// part, or if channels differ.
BatchStatistics combine_statistics(const std::vector<BatchStatistics>& parts);

// The statistics that a batch norm keeps for evaluation, f32 [C] each.
struct RunningStatistics {
  Tensor mean, var;  // the variance is the unbiased one
  float momentum;    // the weight of a new batch
};
// Moves the running statistics towards those of a batch. ValueError: momentum outside [0, 1].
void update_running(const RunningStatistics& running, const BatchStatistics& batch);

// Joins a batch that is normalised in parts: over devices (PyTorch's SyncBatchNorm), or over
// micro-batches. Every part makes the same calls in the same order: rows() and combine() once per
// batch_norm(), sum() once per gradient. A replay finds the statistics in its record.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  // The rows of all parts, given this part's.
  virtual int64_t rows(int64_t own) = 0;
  // The statistics of all parts, given this part's: combine_statistics(), in an order that all
  // parts share.
  virtual BatchStatistics combine(BatchStatistics own) = 0;
  // The sums of all parts, given this part's [2, C] f32: those of dy * xhat and of dy.
  virtual Tensor sum(Tensor own) = 0;
  // Moves running statistics, which parts may share, by the statistics that combine() returned.
  virtual void update(const RunningStatistics& running, const BatchStatistics& batch) {
    update_running(running, batch);
  }
};

// The result of batch_norm().
struct BatchNormResult {
  Tensor y, mean, var;  // var is biased; mean and var carry no gradient
  int64_t rows;         // the number of values per channel in mean and var
};
//! op: batch_norm   autocast: keep
// y = (x - mean) / sqrt(var + eps) * weight + bias for x [..., C], with statistics over all axes
// but the last, in f32. weight, bias [C] f32. ShapeError; ValueError if eps is negative or not
// finite. With an exchange the statistics are those of all parts, with `rows` rows in all, and the
// gradient of x is that of the whole batch; the gradients of weight and bias are this part's share,
// to be added up like all gradients.
BatchNormResult batch_norm(Tensor x, Tensor weight, Tensor bias, float eps = 1e-5f,
                           std::shared_ptr<StatisticsExchange> exchange = {});
//! op: batch_norm_with   torch: batch_norm   autocast: batch_norm
// The same with given statistics [C] f32 (evaluation).
Tensor batch_norm_with(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias,
                       float eps = 1e-5f);

//! op: layer_norm   autocast: keep
// Normalises over the last axis, in f32. weight, bias [C] f32; if undefined, 1 and 0. C <= 65536.
// eps as above.
Tensor layer_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);
//! op: rms_norm   autocast: keep
// x / sqrt(mean(x * x) + eps) * weight, over the last axis (Zhang and Sennrich 2019). Otherwise
// like layer_norm.
Tensor rms_norm(Tensor x, Tensor weight = {}, float eps = 1e-6f);
//! op: group_norm   autocast: keep
// Normalises x [N, ..., C] over everything but N within each of `groups` runs of channels, of any
// size (Wu and He 2018). weight, bias [C] f32; if undefined, 1 and 0. ShapeError unless the groups
// divide C, and for an empty x.
Tensor group_norm(Tensor x, int64_t groups, Tensor weight = {}, Tensor bias = {},
                  float eps = 1e-5f);

//! op: instance_norm   autocast: keep
// group_norm with a group per channel, whose statistics need more than one element (ShapeError).
Tensor instance_norm(Tensor x, Tensor weight = {}, Tensor bias = {}, float eps = 1e-5f);

// The result of lstm().
struct LstmResult {
  Tensor y, c;  // y [T, N, H]: the outputs; c [N, H] f32: the state after the last step
};
//! op: lstm   torch: nn.LSTM   autocast: low   order: 1
// One layer and direction of a recurrent network over T steps, with PyTorch's cells and order of
// gates. gates [T, N, 4 H] (GRU: 3 H) = W_ih x + b_ih; weight_hh [4 H, H]; bias_hh [4 H] f32 or
// undefined; h0 [N, H]; c0 [N, H] f32. `reverse` runs from the last step to the first; y [T, N, H]
// stays in order. ShapeError, and DTypeError unless weight_hh has the dtype of the gates.
LstmResult lstm(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, Tensor c0,
                bool reverse = false);
//! op: gru   torch: nn.GRU   autocast: low   order: 1
Tensor gru(Tensor gates, Tensor weight_hh, Tensor bias_hh, Tensor h0, bool reverse = false);

//! op: cumsum cumprod   autocast: f32   in: float i32
// Cumulative sums and products along an axis, of f32, f16 (in f32) or i32, and logarithms of
// cumulative sums of exp(x), of floats, without overflow; `reverse` starts at the end of the axis.
Tensor cumsum(Tensor x, int axis, bool reverse = false);
Tensor cumprod(Tensor x, int axis, bool reverse = false);
//! op: logcumsumexp   autocast: f32
Tensor logcumsumexp(Tensor x, int axis, bool reverse = false);
//! op: softmax log_softmax   autocast: f32
// exp(x) divided by its sum along the axis, and the logarithm of that, without overflow. f32 or
// f16.
Tensor softmax(Tensor x, int axis = -1);
Tensor log_softmax(Tensor x, int axis = -1);

// The way in which attention() treats the scores.
struct AttentionOptions {
  float scale = 0;      // of the scores; 0: 1 / sqrt(D)
  bool causal = false;  // query i looks at keys 0 .. i only
  float dropout = 0;    // probability that a weight of the softmax becomes 0; the others grow
  Generator* generator = nullptr;  // of the dropout; null: the default one
  int64_t window = 0;  // query i looks only at keys closer than this: |i - j| < window; 0: all
  bool lower_right = false;  // the last query stands at the last key, not the first at the first: i
                             // counts as i + T - S (PyTorch's causal_lower_right; caches of keys)
  Tensor alibi = {};  // slopes, f32 [H] or [B, H]: -slope * |i - j| is added (Press et al. 2022)
  // The first key at which each query looks, i32 [B, S], which does not decrease along S: in rows
  // of several texts, where its text begins. Work on keys before it is left out.
  Tensor starts = {};
};
//! op: attention   torch: scaled_dot_product_attention   autocast: low   order: 1
// softmax(scale * q k^T + mask) v without the [S, T] matrix in memory: q [B, H, S, D], k and v [B,
// K, T, D], D <= 256, views welcome -> [B, H, S, D], a view of [B, S, H, D]: merging the heads is
// free. K divides H: consecutive query heads share a head of k and v (Ainslie et al. 2023). mask is
// f32, broadcasts to [B, H, S, T] along all axes but the last, and is added; its gradient is summed
// over the broadcast axes. lengths [B] i32, 0 to T: keys from there on, even NaN, do not count, nor
// do scores below -1e38; a row without any other score gives zeros. f32 or f16, of one dtype
// (DTypeError); ShapeError for sizes, ValueError for options and lengths, for a mask together with
// slopes, and for starts together with lengths; AutogradError for slopes that require a gradient.
// CPU drivers bound S and T (ShapeError). The method is that of Dao et al. 2022, "FlashAttention".
Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options = {},
                 Tensor mask = {}, Tensor lengths = {});

//! op: embedding   in: any
// table [V, D], index (i32, of rank 5 at most) -> index.shape + [D]. The gradients of repeated
// indices add up in order. An index outside [0, V) gives NaN (-1 if the table is i32) and no
// gradient to any row. The row `padding` gets no gradient.
Tensor embedding(Tensor table, Tensor index, std::optional<int32_t> padding = {});

//! op: dropout
// Zeroes elements with probability p, in [0, 1) (ValueError), and scales the rest by 1 / (1 - p).
Tensor dropout(Tensor x, float p, Generator& generator = default_generator());

// Casts both to one dtype, the later one of u8, i32, f16, f32, as PyTorch promotes.
void promote(Tensor& a, Tensor& b);

}  // namespace rw
