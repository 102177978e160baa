// Optimizer: what every optimizer does around its update rule. A step is queued, never waited for:
// overflow, loss scale, clipping and schedule are decided on the device.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "optim/gradient_table.h"
#include "optim/loss_scaler.h"
#include "optim/parameters.h"
#include "optim/schedule.h"

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

// Follows an optimizer's updates. One that is skipped is announced too: the device alone knows.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  virtual void before_update() = 0;
  virtual void after_update() = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // loss.backward() with the gradient multiplied by the loss scale, as it is on the device now, and
  // by `weight`. The loss has one element.
  virtual void backward(const Tensor& loss, float weight = 1);
  // Queues an update from the collected gradients. It is skipped on the device, state included, if
  // a gradient is not finite. Parameters without a gradient stay as they are, as in PyTorch. False:
  // nothing was queued (no parameter has a gradient; Accumulate, inside a window).
  virtual bool step();
  virtual void zero_grad();  // every grad() is undefined again: the gradients give their memory back

  void set_learning_rate(float rate);  // before lr_scale and schedule
  void set_schedule(const Schedule& schedule) { schedule_ = schedule; }
  void set_scaler(const LossScaler& scaler);  // starts it afresh
  void set_max_norm(float max_norm);          // clips the gradient's norm; 0: no clipping

  // These wait for the device.
  uint64_t updates() const;  // done
  uint64_t skipped() const;  // because of overflows
  float loss_scale() const;
  float grad_norm() const;       // at the last step: unscaled, averaged, before clipping
  double learning_rate() const;  // of the last update, or of the first if there was none
  std::string diagnose() const;  // what the loss scale's history means

  // For checkpoints: the tensors that continue this optimizer, "exp_avg.NAME" and so on. Views.
  using NamedState = std::vector<std::pair<std::string, Tensor>>;
  virtual NamedState state() const;
  // Copies into state(); throws FileError for a missing name or another shape.
  virtual void load_state(const NamedState& saved);
  static void copy_state(const NamedState& saved, const NamedState& target);  // the same for others

  const std::vector<ParameterGroup>& groups() const { return parameters_.groups(); }
  const FlatParameters& parameters() const { return parameters_; }
  const Tensor& control() const { return control_; }  // f32 [STATE_SIZE], on the device
  Device& device() const { return parameters_.device(); }
  void add_observer(std::weak_ptr<UpdateObserver> observer);

 protected:
  Optimizer(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule);
  Optimizer(Optimizer&&) = default;
  // An update with the gradients divided by `weight`; false if there are none.
  bool update(float weight);
  void place_gradients() { parameters_.place_gradients(); }  // for gradients that outlive a step

 private:
  void prepare(float weight);
  float read_control(int slot) const;

  std::unique_ptr<UpdateRule> rule_;
  FlatParameters parameters_;
  GradientTable gradients_;
  Tensor control_;
  std::vector<std::weak_ptr<UpdateObserver>> observers_;
  Schedule schedule_;
  LossScaler scaler_;
  float max_norm_ = 0;
  bool has_scaled_ = false;  // backward() ran since the last update
};

}  // namespace rw
