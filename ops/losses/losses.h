// Losses, with PyTorch's meanings. All are f32 whatever the dtype of the inputs, computed in f32,
// and take f32 and f16 (DTypeError otherwise); of mixed ones f32 wins. Reduction::none gives the
// losses one by one, mean and sum a scalar. Pairs of tensors broadcast.
#pragma once

#include "../ops.h"

namespace rw {

// What becomes of the losses of the samples: none (they are returned one by one), their mean, their
// sum.
enum class Reduction { none, mean, sum };

// (x - target)^2.
Tensor mse_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean);

// |x - target|.
Tensor l1_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean);

// d = |x - target|: d^2 / (2 beta) below beta, d - beta / 2 from there on. ValueError unless beta
// >= 0; 0 is l1_loss.
Tensor smooth_l1_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean,
                      float beta = 1);

// d = |x - target|: d^2 / 2 below delta, delta * (d - delta / 2) from there on (Huber 1964).
// ValueError unless delta > 0.
Tensor huber_loss(Tensor x, Tensor target, Reduction reduction = Reduction::mean, float delta = 1);

// -(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; logarithms are at least -100.
// `weight`, which broadcasts, multiplies the losses; it gets no gradient. Under f16 x is coarse
// near 1: take the logits' form.
Tensor binary_cross_entropy(Tensor x, Tensor target, Tensor weight = {},
                            Reduction reduction = Reduction::mean);

// What binary_cross_entropy_with_logits() takes.
struct BceOptions {
  Tensor weight = {};  // multiplies the losses; broadcasts; no gradient
  Tensor pos_weight =
      {};  // f32, multiplies the positive part; broadcasts to the losses; no gradient
  Reduction reduction = Reduction::mean;  // of the losses
};
// binary_cross_entropy of sigmoid(x), without overflow.
Tensor binary_cross_entropy_with_logits(Tensor x, Tensor target, const BceOptions& options = {});

// What kl_div() takes.
struct KlDivOptions {
  bool log_target = false;                // the target is given as logarithms too
  Reduction reduction = Reduction::mean;  // of the losses
  bool batchmean =
      false;  // the sum divided by the first axis, the divergence, whatever `reduction`
};
// t (log t - x) for log-probabilities x and probabilities t. The mean over all elements, as PyTorch
// has it by default, is not the divergence.
Tensor kl_div(Tensor x, Tensor target, const KlDivOptions& options = {});

// What sigmoid_focal_loss() takes.
struct FocalOptions {
  float alpha = 0.25f;  // weight of the positive class, 1 - alpha of the negative; below 0: neither
  float gamma = 2;      // >= 0 (ValueError): how much less easy examples count
  Reduction reduction = Reduction::mean;  // of the losses
};
// (1 - q)^gamma * binary_cross_entropy_with_logits, q the probability of the target (Lin et al.
// 2017; torchvision's, with its defaults but for the reduction).
Tensor sigmoid_focal_loss(Tensor x, Tensor target, const FocalOptions& options = {});

// max(0, -target * (a - b) + margin), target 1 or -1: which of the two is to be larger.
Tensor margin_ranking_loss(Tensor a, Tensor b, Tensor target, float margin = 0,
                           Reduction reduction = Reduction::mean);

// The loss of the cosine of a and b [N, D] (or [D]) along the last axis: 1 - cos if target [N] is
// 1, and max(0, cos - margin) if it is -1. The target is a float or i32. Throws ShapeError.
Tensor cosine_embedding_loss(Tensor a, Tensor b, Tensor target, float margin = 0,
                             Reduction reduction = Reduction::mean);

// What triplet_margin_loss() takes.
struct TripletOptions {
  float margin = 1;   // by which the negative is to be farther
  float p = 2;        // of the norm; >= 1 (ValueError)
  float eps = 1e-6f;  // added to the differences
  bool swap = false;  // the positive's distance to the negative may be the nearer
  Reduction reduction = Reduction::mean;  // of the losses
};
// max(0, |anchor - positive| - |anchor - negative| + margin), norms along the last axis of [...,
// D].
Tensor triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative,
                           const TripletOptions& options = {});

// What multi_margin_loss() takes.
struct MultiMarginOptions {
  float p = 1;                            // the power: 1 or 2 (ValueError)
  float margin = 1;                       // by which the target is to be larger
  Tensor weight = {};                     // [C] f32: of the target's class; no gradient
  Reduction reduction = Reduction::mean;  // of the losses
};
// sum over the classes j but the target t of max(0, margin - x[t] + x[j])^p, / C. x [N, C], target
// [N] i32, which must be a class.
Tensor multi_margin_loss(Tensor x, Tensor target, const MultiMarginOptions& options = {});

// -log_probs[..., target] * weight[target]: log_probs [..., C], target [...] i32, weight [C] f32 or
// undefined, without a gradient. The mean divides by the weights of the targets that are not
// ignored; where there are none it is 0. A target that is neither a class nor ignore_index gives a
// loss and gradients of NaN. ShapeError, DTypeError.
Tensor nll_loss(Tensor log_probs, Tensor target, Tensor weight = {}, int ignore_index = -100,
                Reduction reduction = Reduction::mean);

// As PyTorch's.
struct CrossEntropyOptions {
  float label_smoothing = 0;  // share of the target that all classes get evenly, in [0, 1)
  int ignore_index = -100;    // targets of this value count for nothing
  Reduction reduction = Reduction::mean;  // mean over the targets that are not ignored
};
// logits [N, C] f32 or f16, target [N] i32 -> f32 scalar or [N]. A target that is neither a class
// nor ignore_index gives a loss and gradients of NaN. ShapeError, DTypeError; ValueError for
// options.
Tensor cross_entropy(Tensor logits, Tensor target, const CrossEntropyOptions& options = {});

// As CrossEntropyOptions, of the mean.
struct TiedCrossEntropyOptions {
  float label_smoothing = 0;  // in [0, 1)
  int ignore_index = -100;    // targets of this value count for nothing
  int64_t chunk = 0;          // rows whose logits exist at a time; 0: about 32 MiB of them
};
// cross_entropy(linear(hidden, table, bias), target), the mean, without the [N, V] logits in
// memory: they are made chunk by chunk, and again for the gradient. hidden [N, H], table [V, H],
// bias [V] or undefined, target [N] i32. `predicted` receives the largest logit's class per row,
// [N] i32.
Tensor tied_cross_entropy(Tensor hidden, Tensor table, Tensor bias, Tensor target,
                          const TiedCrossEntropyOptions& options = {}, Tensor* predicted = nullptr);
// cross_entropy with weights of classes, weight [C] f32 or undefined, which get no gradient.
// target: [N] i32, as in cross_entropy(); the mean divides by the targets' weights. Or [N, C]
// float: the probability of each class, which gets no gradient (AutogradError; detach() it);
// ignore_index does not apply and the mean is over N.
Tensor cross_entropy(Tensor logits, Tensor target, Tensor weight,
                     const CrossEntropyOptions& options = {});

namespace detail {
// The losses one by one, their mean or their sum.
Tensor reduced(Tensor losses, Reduction reduction);
}  // namespace detail

}  // namespace rw
