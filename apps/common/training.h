// What the training programs' steps share.
#pragma once

#include <span>

#include "rewind/core/ops/ops.h"
#include "rewind/core/predict/program.h"
#include "rewind/io/model.h"
#include "rewind/nn/module.h"
#include "rewind/optim/optimizer.h"

namespace rw {

// Steps of one model.
class ModelSteps : public TrainingSteps {
 public:
  virtual Module& trained() = 0;
  void copy_weights() override { copy_as_file(trained()); }
};

// The end of training: updates from a window that is not full, with end_step() behind it.
inline void finish_window(Optimizer& optimizer) {
  if (!optimizer.flush()) return;
  optimizer.zero_grad();
  default_device()->end_step();
}

// A tensor of the values of a batch; of its shape alone in dry runs, where there are none.
inline Tensor batch_tensor(std::span<const float> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::f32) : tensor(values, shape);
}
inline Tensor batch_tensor(std::span<const int32_t> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::i32) : tensor(values, shape);
}

}  // namespace rw
