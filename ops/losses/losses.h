// Losses, with PyTorch's meanings. They are computed in f32 and return f32 whatever the dtype of
// the inputs, and take f32 and f16 (DTypeError otherwise), also mixed. Reduction::none returns the
// losses one by one, mean and sum a scalar. Pairs of tensors broadcast.
#pragma once

#include "../network/block_matrix.h"
#include "../ops.h"

namespace rw {

// How the losses of the samples are reduced: none (they are returned one by one), mean, or sum.
enum class Reduction { none, mean, sum };

//! op: mse_loss   autocast: f32
// (x - target)^2.
Tensor mse_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean);

//! op: l1_loss   autocast: f32
// |x - target|.
Tensor l1_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean);

//! op: smooth_l1_loss   autocast: f32
// With d = |x - target|: d^2 / (2 beta) below beta, and d - beta / 2 from there on. ValueError
// unless beta >= 0; 0 gives l1_loss.
Tensor smooth_l1_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean,
                      float beta = 1);

//! op: huber_loss   autocast: f32
// With d = |x - target|: d^2 / 2 below delta, and delta * (d - delta / 2) from there on (Huber
// 1964). ValueError unless delta > 0.
Tensor huber_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean, float delta = 1);

//! op: binary_cross_entropy   autocast: f32
// -(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; logarithms are at least -100.
// `weight`, which broadcasts, multiplies the losses and gets no gradient. In f16, x is coarse near
// 1: use the form with logits.
Tensor binary_cross_entropy(Tensor x, Tensor target, Tensor weight = {},
                            Reduction reduction = Reduction::mean);

// The options of binary_cross_entropy_with_logits().
struct BceOptions {
  Tensor weight = {};  // multiplies the losses; broadcasts; no gradient
  Tensor pos_weight =
      {};  // f32, multiplies the positive part; broadcasts to the losses; no gradient
  Reduction reduction = Reduction::mean;  // of the losses
};
//! op: binary_cross_entropy_with_logits   autocast: f32
// binary_cross_entropy of sigmoid(x), without overflow.
Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target, const BceOptions& options = {});

// The options of kl_div().
struct KlDivOptions {
  bool log_target = false;                // the target consists of logarithms, too
  Reduction reduction = Reduction::mean;  // of the losses
  bool batchmean =
      false;  // the sum divided by the first axis, the divergence, whatever `reduction`
};
//! op: kl_div   autocast: f32
// t (log t - x) for log-probabilities x and probabilities t. The mean over all elements, PyTorch's
// default, is not the divergence.
Tensor kl_div(Tensor x, Tensor target, const KlDivOptions& options = {});

// The options of sigmoid_focal_loss().
struct FocalOptions {
  float alpha = 0.25f;  // weight of the positive class, 1 - alpha of the negative; below 0: neither
  float gamma = 2;      // >= 0 (ValueError); the larger it is, the less easy examples count
  Reduction reduction = Reduction::mean;  // of the losses
};
//! op: sigmoid_focal_loss   torch: torchvision.ops.sigmoid_focal_loss   autocast: f32
// (1 - q)^gamma * binary_cross_entropy_with_logits, where q is the probability of the target (Lin
// et al. 2017; torchvision's, with its defaults except for the reduction).
Tensor sigmoid_focal_loss(Tensor x, Tensor target, const FocalOptions& options = {});

//! op: margin_ranking_loss   autocast: f32   in: any
// max(0, -target * (a - b) + margin), where the target, 1 or -1, says which of the two should be
// larger.
Tensor margin_ranking_loss(Tensor a, Tensor b, Tensor target, float margin = 0,
                           Reduction reduction = Reduction::mean);

//! op: cosine_embedding_loss   autocast: f32
// The loss of the cosine of a and b [N, D] (or [D]) along the last axis: 1 - cos if target [N] is
// 1, and max(0, cos - margin) if it is -1. The target is a float or i32. Throws ShapeError.
Tensor cosine_embedding_loss(Tensor a, Tensor b, Tensor target, float margin = 0,
                             Reduction reduction = Reduction::mean);

// The options of triplet_margin_loss().
struct TripletOptions {
  float margin = 1;   // by which the negative must be farther away
  float p = 2;        // of the norm; >= 1 (ValueError)
  float eps = 1e-6f;  // added to the differences
  bool swap = false;  // takes the negative's distance to the positive if smaller
  Reduction reduction = Reduction::mean;  // of the losses
};
//! op: triplet_margin_loss   autocast: f32
// max(0, |anchor - positive| - |anchor - negative| + margin), with norms along the last axis of
// [..., D].
Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                           const TripletOptions& options = {});

// The options of multi_margin_loss().
struct MultiMarginOptions {
  float p = 1;                            // the power: 1 or 2 (ValueError)
  float margin = 1;                       // by which the target must be larger
  Tensor weight = {};                     // [C] f32: of the target's class; no gradient
  Reduction reduction = Reduction::mean;  // of the losses
};
//! op: multi_margin_loss   autocast: f32
// The sum over the classes j other than the target t of max(0, margin - x[t] + x[j])^p, divided by
// C. x [N, C], target [N] i32, which must be a class.
Tensor multi_margin_loss(Tensor x, Tensor target, const MultiMarginOptions& options = {});

//! op: nll_loss   autocast: f32
// -log_probs[..., target] * weight[target]: log_probs [..., C], target [...] i32, weight [C] f32 or
// undefined, without a gradient. The mean divides by the weights of the targets that are not
// ignored, and is 0 if there are none. A target that is neither a class nor ignore_index gives a
// loss and gradients of NaN. ShapeError, DTypeError.
Tensor nll_loss(Tensor log_probs, Tensor target, Tensor weight = {}, int ignore_index = -100,
                Reduction reduction = Reduction::mean);

// PyTorch's options.
struct CrossEntropyOptions {
  float label_smoothing = 0;  // share of the target that all classes get evenly, in [0, 1)
  int ignore_index = -100;    // targets of this value do not count
  Reduction reduction = Reduction::mean;  // mean over the targets that are not ignored
};
//! op: cross_entropy   autocast: f32
// logits [N, C] f32 or f16, target [N] i32 -> f32 scalar or [N]. A target that is neither a class
// nor ignore_index gives a loss and gradients of NaN. ShapeError, DTypeError; ValueError for
// options.
Tensor cross_entropy(Tensor logits, Tensor target, const CrossEntropyOptions& options = {});

// As CrossEntropyOptions, for the mean.
struct TiedCrossEntropyOptions {
  float label_smoothing = 0;  // in [0, 1)
  int ignore_index = -100;    // targets of this value do not count
  int64_t chunk = 0;          // rows whose logits exist at a time; 0: about 32 MiB of them
};
//! op: tied_cross_entropy   torch: none   autocast: low
// The mean of cross_entropy(linear(hidden, table, bias), target), without the [N, V] logits in
// memory: they are computed chunk by chunk, and again for the gradient. hidden [N, H], table [V,
// H], bias [V] or undefined, target [N] i32. `predicted` receives the class of the largest logit of
// each row, [N] i32.
Tensor tied_cross_entropy(Tensor hidden, Tensor table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& options = {}, Tensor* predicted = nullptr);
//! op: tied_cross_entropy_blocks   torch: none   autocast: tied_cross_entropy
// The same with a frozen table in blocks, which gets no gradient: a slab of its rows at a time
// becomes floats.
Tensor tied_cross_entropy(Tensor hidden, const BlockMatrix& table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& options = {}, Tensor* predicted = nullptr);
//! op: cross_entropy_weighted   torch: cross_entropy   autocast: cross_entropy
// cross_entropy with weights of classes, weight [C] f32 or undefined, which get no gradient. The
// target is either [N] i32, as in cross_entropy(), and the mean divides by the targets' weights; or
// [N, C] float, the probability of each class, which gets no gradient (AutogradError; detach() it),
// for which ignore_index does not apply and the mean is over N.
Tensor cross_entropy(Tensor logits, Tensor target, Tensor weight,
                     const CrossEntropyOptions& options = {});

namespace detail {
// The losses one by one, their mean, or their sum.
Tensor reduced(Tensor losses, Reduction reduction);
}  // namespace detail

}  // namespace rw
