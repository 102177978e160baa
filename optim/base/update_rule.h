// What differs between optimizers.
#pragma once

#include <optional>
#include <span>
#include <string>
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

  // Of one of the slots, in the shape of its part: the f32 values that are to change, and a state
  // that it has.
  Tensor master(const FlatParameters::Slot& slot) const;
  Tensor state(const FlatParameters::Slot& slot, size_t state) const;
};

// How an optimizer changes parameters. A new optimizer is a new rule and its kernel.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // One name per tensor of state that a parameter needs, as PyTorch calls it.
  virtual std::vector<std::string> state_names() const = 0;
  // The shape of one of them; none: this parameter has no such state. What kernels find through the
  // table of chunks has the parameter's shape, or is there for no parameter of the group.
  virtual std::optional<Shape> state_shape(size_t /*state*/, const Tensor& parameter,
                                           size_t /*group*/) const {
    return parameter.shape();
  }
  // How they are stored.
  virtual DType state_dtype(size_t /*state*/) const { return DType::f32; }
  virtual float initial_state() const { return 0; }  // what all of them hold at first
  // As UpdateUnit: with 1, each element by itself, all states have the parameter's shape. Such runs
  // may be parts of a parameter, and where ranks share out parameters those of more elements, too.
  virtual int64_t unit(size_t /*group*/) const { return 0; }
  // Called with the parameters that will be updated, and again if they come to lie in other runs.
  virtual void prepare(const GradientTable&) {}

  using Target = UpdateTarget;
  virtual void update(const Target& target) const = 0;

  std::vector<DType> state_dtypes() const;  // of all states

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
