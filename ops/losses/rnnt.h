// Transducers: labels from frames, by a lattice of both, with a network of the labels so far beside
// that of the frames (Graves 2012).
#pragma once

#include "../ops.h"
#include "losses.h"

namespace rw {

// The options of rnnt_loss().
struct RnntOptions {
  int32_t blank = 0;                      // the class that goes to the next frame
  Reduction reduction = Reduction::mean;  // over the samples
  bool zero_infinity = false;  // losses of samples without any way are 0, and have no gradient
  int64_t chunk =
      0;  // of rnnt_joint_loss: frames whose logits exist at a time; 0: about 32 MiB of them
};
//! op: rnnt_loss   torch: torchaudio.functional.rnnt_loss   autocast: f32   order: 1
// The negative logarithm of the probability of all alignments of the labels: f32. logits [N, T, U +
// 1, C] at frame t after u labels, f32 or f16; targets i32 [N, U]; input_lengths (frames) and
// target_lengths (labels) i32 [N]; lengths out of range count as the nearest possible. No alignment
// contains a target that is not a class, or NaN. A sample without any alignment has an infinite
// loss and a gradient of NaN. It computes in f32, in a fixed order. U <= 2047. ShapeError,
// DTypeError, ValueError (blank). As torchaudio.functional.rnnt_loss.
Tensor rnnt_loss(Tensor logits, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                 const RnntOptions& options = {});

//! op: rnnt_joint_loss   torch: none   autocast: low   order: 1
// rnnt_loss of the logits tanh(encoder[n, t] + predictor[n, u]) @ weight^T + bias, of which only a
// chunk of frames exists at any time: a checkpoint segment recomputes each chunk for its gradient.
// encoder [N, T, D], predictor [N, U + 1, D], weight [C, D], bias [C] or undefined, as for
// linear(). Throws as rnnt_loss().
Tensor rnnt_joint_loss(Tensor encoder, Tensor predictor, Tensor weight, Tensor bias, Tensor targets,
                       Tensor input_lengths, Tensor target_lengths,
                       const RnntOptions& options = {});

}  // namespace rw
