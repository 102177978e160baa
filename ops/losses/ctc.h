// Connectionist temporal classification: sequences of labels from longer sequences of frames,
// without knowing which frame is which label (Graves et al. 2006).
#pragma once

#include <vector>

#include "../ops.h"
#include "losses.h"

namespace rw {

// Target sequences as ctc_loss() takes them.
struct CtcTargets {
  Tensor labels;   // i32 [N, S], S the longest
  Tensor lengths;  // i32 [N]
};
//! op: -
// Puts sequences side by side on the default device and checks them: ValueError with the sample and
// the place if a label is not in [0, classes) or is the blank. If `frames` (one count per sample)
// is not empty, also if a sample has fewer frames than its labels need: one each, and one more
// between equal neighbours.
CtcTargets ctc_targets(const std::vector<std::vector<int32_t>>& sequences, int64_t classes,
                       int32_t blank = 0, const std::vector<int64_t>& frames = {});

// The options of ctc_loss().
struct CtcOptions {
  int32_t blank = 0;                      // its class
  Reduction reduction = Reduction::mean;  // mean: of losses divided by their label counts
  bool zero_infinity = false;  // losses of samples without any way are 0, and have no gradient
};
//! op: ctc_loss   autocast: f32   order: 1
// The negative logarithm of the probability of all alignments of the labels: f32. log_probs [T, N,
// C], f32 or f16, as log_softmax gives them along C; targets i32 [N, S]; input_lengths (frames) and
// target_lengths (labels) i32 [N]. A sample without any alignment has an infinite loss, and NaN as
// the gradient of its frames; one of 0 frames and 0 labels has the loss 0. No alignment contains a
// label outside [0, C), or NaN; lengths out of range count as the nearest possible. It computes in
// f32, in a fixed order, and keeps [T, N, 2 S + 2] floats for the gradient. S <= 1023. ShapeError,
// DTypeError, ValueError (blank). As torch.nn.functional.ctc_loss, except that the gradient is that
// of log_probs itself: PyTorch's assumes that they come from log_softmax (the gradient below it is
// the same).
Tensor ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                const CtcOptions& options = {});

}  // namespace rw
