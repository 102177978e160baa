// The differences between optimizers.
#pragma once

#include <span>
#include <vector>

#include "../../core/tensor/launch.h"
#include "gradient_table.h"

namespace rw {

// A run of parameters: flat, dense tensors of one size, the table that says where the gradients
// lie, and the control buffer (STATE_* of shaders/params.h). Kernels leave parameters without a
// gradient alone, and do nothing when control[STATE_FOUND_INF] is set. Rules that look at
// parameters one by one find them in `slots`, their values and states by master() and state().
struct UpdateTarget {
  Tensor parameters;
  std::vector<Tensor> states;
  Tensor control;
  Tensor table;        // as GradientTable::table()
  uint32_t shift = 0;  // as GradientTable::shift()
  float learning_rate = 0, weight_decay = 0;
  size_t run = 0, group = 0;  // which of the parameters' runs and groups this is
  GradientTable& gradients;   // whose parts(run) are a dispatch each
  const FlatParameters& all;
  std::span<const FlatParameters::Slot> slots;  // of this run

  // For a slot, in the shape of its part: the f32 values that change, and one of its states.
  Tensor master(const FlatParameters::Slot& slot) const;
  Tensor state(const FlatParameters::Slot& slot, size_t state) const;
  // A chunk of it in the table, by which kernels find the number of its updates.
  uint32_t chunk(const FlatParameters::Slot& slot) const;
};

// How an optimizer changes parameters. A new optimizer is a new rule and its kernel.
class UpdateRule : public StateRule {
 public:
  // Called with the parameters that will be updated, and again if they move to other runs.
  virtual void prepare(const GradientTable&) {}

  using Target = UpdateTarget;
  virtual void update(const Target& target) const = 0;

  float learning_rate = 1e-3f;
  float weight_decay = 0;
};

// The kernel moment_update, for rules with up to three states: updates a run by `rule` (MOMENT_* of
// shaders/params.h). `p` has what the rule reads of a, b, eps and flags; states that it does not
// have may be undefined.
void moment_update(const UpdateRule::Target& target, uint32_t rule, kernels::MomentUpdateParams p,
                   const Tensor& first, const Tensor& second = {}, const Tensor& third = {});

// ValueError unless lr and weight_decay are >= 0 and finite.
void check_rates(const char* optimizer, float lr, float weight_decay);
// ValueError unless the betas are in [0, 1) and eps > 0.
void check_moments(const char* optimizer, float beta1, float beta2, float eps);

}  // namespace rw
