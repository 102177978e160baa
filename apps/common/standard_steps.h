// Training steps of models that everybody knows, on data that is made up: what `bench` measures and
// `tune` tunes for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

struct StandardStep {
  std::string name;  // "resnet20-64": the model and the batch
  // Makes the model on the default device; what it gives takes a step.
  std::function<std::function<void()>(DType)> make;
  bool is_large = false;  // a CPU takes minutes for it
};
std::vector<StandardStep> standard_steps();

// Values in [-1, 1), the same ones always; with `trained`, a leaf that wants its gradient.
Tensor standard_values(const Shape& shape, DType dtype = DType::f32, bool trained = false);
Tensor standard_indices(const Shape& shape, int32_t n);  // i32 in [0, n)

}  // namespace rw
