// The statistics of gradients that clipping and loss scaling need, in a fixed order of summation.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace rw {

// The 2-norm of all gradients together, as they are (with any loss scale in them). Parameters
// without a gradient count as zero. Infinite or NaN if a gradient is. Waits for the device.
float grad_norm(const std::vector<Tensor>& parameters);

// Partial sums over several flat tensors, each cut into the same number of chunks.
class GradStats {
 public:
  GradStats() = default;
  // For `tensors` tensors of at most `largest` elements.
  GradStats(size_t tensors, int64_t largest, Device& device);

  void add(size_t index, const Tensor& gradient);  // one dispatch; gradient is dense
  // What update_prepare reads: sums of squares, then overflow flags, `chunks()` of each.
  Tensor partials() const;
  uint32_t chunks() const { return static_cast<uint32_t>(tensors_) * chunks_; }

 private:
  size_t tensors_ = 0;
  uint32_t chunk_ = 0, chunks_ = 0;  // elements per chunk, chunks per tensor
  Tensor parts_;                     // f32 [tensors, 2, chunks_]
};

}  // namespace rw
