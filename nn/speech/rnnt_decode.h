// Decodes the frames of a transducer that was trained with rnnt_joint_loss() into labels.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// The network of the labels so far. Given the next label of each sample, or -1 if a sample has
// none, it returns its output for all samples, [N, D].
using RnntPredict = std::function<Tensor(std::span<const int32_t> labels)>;

// The likeliest class at each step of all samples (Graves 2012, without a beam), by the joint
// network tanh(encoder + predictor) @ weight^T + bias of rnnt_joint_loss(). Frames may come in
// parts: the labels so far are kept.
class RnntGreedyDecoder {
 public:
  // weight [C, D], bias [C] or undefined. `predict` is called with the blank for each of `samples`
  // now, and from then on for every label. The blank is the class that goes to the next frame; one
  // has at most `most` labels, so that every search ends. ValueError for these two.
  RnntGreedyDecoder(int64_t samples, RnntPredict predict, Tensor weight, Tensor bias,
                    int32_t blank = 0, int most = 8);

  // Takes further frames [N, T, D], of which `lengths` count for each sample, or all if it is
  // empty. Waits for the device once for each step. ShapeError, ValueError.
  void decode(const Tensor& encoder, std::span<const int64_t> lengths = {});
  // Returns the labels of each sample so far.
  const std::vector<std::vector<int32_t>>& labels() const { return labels_; }

 private:
  RnntPredict predict_;
  Tensor weight_, bias_, predicted_;
  int32_t blank_;
  int most_;
  std::vector<std::vector<int32_t>> labels_;
};

}  // namespace rw
