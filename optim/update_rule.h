// What differs between optimizers.
#pragma once

#include <string>
#include <vector>

#include "rewind/optim/gradient_table.h"

namespace rw {

// How an optimizer changes parameters. A new optimizer is a new rule and its kernel.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // One name per tensor of state that a parameter needs, as PyTorch calls it.
  virtual std::vector<std::string> state_names() const = 0;
  // Called once, with the parameters that will be updated.
  virtual void prepare(const GradientTable&) {}

  // A run of parameters: flat, dense tensors of one size, the table that says where the gradients
  // lie, and the control buffer (STATE_* of shaders/params.h). Kernels leave parameters without a
  // gradient alone, and do nothing when control[STATE_FOUND_INF] is set.
  struct Target {
    Tensor parameters;
    std::vector<Tensor> states;
    Tensor control;
    Tensor table;                            // as GradientTable::table()
    std::vector<GradientTable::Part> parts;  // a dispatch each
    uint32_t shift = 0;                      // as GradientTable::shift()
    float learning_rate = 0, weight_decay = 0;
    size_t run = 0;  // which of the parameters' runs this is
  };
  virtual void update(const Target& target) const = 0;

  float learning_rate = 1e-3f;
  float weight_decay = 0;
};

}  // namespace rw
