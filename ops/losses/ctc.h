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
// Puts sequences side by side on the default device, and checks them: ValueError naming sample and
// place where a label is not in [0, classes) or is the blank; where `frames` (one count per sample)
// is not empty, also where a sample has fewer frames than its labels need, one each and one more
// between equal neighbours.
CtcTargets ctc_targets(const std::vector<std::vector<int32_t>>& sequences, int64_t classes,
                       int32_t blank = 0, const std::vector<int64_t>& frames = {});

// What ctc_loss() takes.
struct CtcOptions {
  int32_t blank = 0;                      // its class
  Reduction reduction = Reduction::mean;  // mean: of losses divided by their label counts
  bool zero_infinity = false;  // losses of samples without any way are 0, and have no gradient
};
// The negative logarithm of the probability of all ways to say the labels: f32. log_probs [T, N,
// C], f32 or f16, as log_softmax gives them along C; targets i32 [N, S]; input_lengths (frames) and
// target_lengths (labels) i32 [N]. A sample without any way has an infinite loss, and NaN as the
// gradient of its frames; one of 0 frames and 0 labels has the loss 0. No way leads through a label
// outside [0, C), or through NaN; lengths count as the nearest possible. In f32, in a fixed order;
// keeps [T, N, 2 S + 2] floats for the gradient. S <= 1023. ShapeError, DTypeError, ValueError
// (blank). As torch.nn.functional.ctc_loss, but the gradient is that of log_probs itself: PyTorch's
// takes for granted that they come from log_softmax (the same below it).
Tensor ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                const CtcOptions& options = {});

}  // namespace rw
