// The part that the steps of all training programs share.
#pragma once

#include <optional>
#include <span>

#include "../../dist/data_parallel.h"
#include "../../io/models/model.h"
#include "../../nn/module.h"
#include "../../ops/ops.h"
#include "../../optim/base/optimizer.h"
#include "../../planner/forecast/program.h"

namespace rw {

// While the result lives, parameters that ranks keep in parts are whole. All ranks must ask for it
// together; it is empty if there is one rank.
[[nodiscard]] inline std::optional<DataParallel::Gathered> gather_parameters(
    DataParallel* parallel) {
  if (!parallel) return std::nullopt;
  return std::optional<DataParallel::Gathered>(std::in_place, *parallel);
}

// The steps of one model. Steps that only evaluate leave dry_step() out.
class ModelSteps : public TrainingSteps {
 public:
  void dry_step(const BatchShape&) override { fail("steps", "nothing is trained"); }
  virtual Module& trained() = 0;                                // the model
  virtual DataParallel* updates_of_ranks() { return nullptr; }  // null: there is one rank
  void copy_weights() override { save_weights(true); }
  void save_weights(bool is_first) override {
    const auto whole = gather_parameters(updates_of_ranks());
    if (is_first) copy_as_file(trained());
  }
};

// Ends training: makes updates from a window that is not full, followed by end_step().
inline void finish_window(Optimizer& optimizer) {
  if (!optimizer.flush()) return;
  optimizer.zero_grad();
  default_device()->end_step();
}

// Makes a tensor from the values of a batch, or, in dry runs, where there are none, from its shape
// alone.
inline Tensor batch_tensor(std::span<const float> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::f32) : tensor(values, shape);
}
inline Tensor batch_tensor(std::span<const int32_t> values, const Shape& shape) {
  return values.empty() ? empty(shape, DType::i32) : tensor(values, shape);
}

}  // namespace rw
