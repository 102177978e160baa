// Training steps of well-known models on made-up data, which `bench` measures and for which `tune`
// tunes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

struct StandardStep {
  std::string name;  // "resnet20-64": the model and the batch
  // Makes the model on the default device, and returns a function that takes a step.
  std::function<std::function<void()>(DType)> make;
  bool is_large = false;  // a step takes minutes on a CPU
};
std::vector<StandardStep> standard_steps();

// Returns values in [-1, 1), always the same ones; with `trained`, as a leaf that requires a
// gradient.
Tensor standard_values(const Shape& shape, DType dtype = DType::f32, bool trained = false);
Tensor standard_indices(const Shape& shape, int32_t n);  // i32 in [0, n)

}  // namespace rw
