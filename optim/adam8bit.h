// Adam and AdamW whose moments take 2 bytes per parameter instead of 8 (Dettmers et al. 2022,
// "8-bit Optimizers via Block-wise Quantization").
#pragma once

#include "adam.h"

namespace rw {

// Parameters with fewer elements keep f32 moments.
inline constexpr int64_t least_8bit_elements = 4096;

//! torch: bitsandbytes.optim.Adam8bit
// Adam with its moments as codes of dynamic_map(): the mean with a sign, the mean of squares
// without. Each block of 256 elements has a scale of its own, its largest moment. An update decodes
// the moments, changes them in f32, uses these values, and rounds them to the nearest code; a mean
// of squares that is not 0 is not rounded to 0, because the next update would divide by it. As with
// other states, every run gives the same bits. The state of a parameter has PyTorch's names with
// "_codes" (u8, its shape) and "_absmax" (f32 [blocks]) appended, or is Adam's if the parameter is
// small. Each parameter takes a dispatch of its own. ValueError for amsgrad.
class Adam8bit : public Optimizer {
 public:
  explicit Adam8bit(std::vector<Tensor> parameters, const AdamOptions& options = {});
  explicit Adam8bit(std::vector<ParameterGroup> groups, const AdamOptions& options = {});
  explicit Adam8bit(std::initializer_list<Tensor> parameters, const AdamOptions& options = {})
      : Adam8bit(std::vector<Tensor>(parameters), options) {}
};

//! torch: bitsandbytes.optim.AdamW8bit
// The same with AdamW's decoupled weight decay.
class AdamW8bit : public Optimizer {
 public:
  explicit AdamW8bit(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  explicit AdamW8bit(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  explicit AdamW8bit(std::initializer_list<Tensor> parameters, const AdamWOptions& options = {})
      : AdamW8bit(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
