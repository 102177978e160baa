// Optimizer: everything that optimizers do around their update rules. A step is queued and never
// waited for: the device decides about overflow, loss scale, clipping and schedule.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../schedules/schedule.h"
#include "loss_scaler.h"
#include "parameters.h"

namespace rw {

class GradientTable;
class UpdateControl;
class UpdateRule;
struct UpdateTarget;

// Follows an optimizer's updates. It also sees updates that are skipped: only the device knows.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  // Throws if no update may be made now. Called before anything changes.
  virtual void check_update() {}
  // Called around the kernels of an update, when they are queued.
  virtual void before_update() = 0;
  virtual void after_update() = 0;
};

// Changes parameters by their gradients. Derived classes add the rule: SGD, Adam, AdamW, Lamb,
// Lion, RMSprop, Adagrad, Adafactor, Muon.
class Optimizer {
 public:
  virtual ~Optimizer();

  // loss.backward() with the gradient multiplied by the current loss scale on the device, and by
  // `weight`. The loss has one element.
  virtual void backward(const Tensor& loss, float weight = 1);
  // Queues an update from the collected gradients. The device skips it, state included, if a
  // gradient is not finite. Parameters without a gradient stay as they are, as in PyTorch. Returns
  // false if nothing was queued (no parameter has a gradient; Accumulate, inside a window). It ends
  // a step of the device's account: steps that repeat from here on are packed (Device::end_step).
  virtual bool step();

  // Queues an update from what step() has only counted so far (in Accumulate, at the end of an
  // epoch in a window). Returns false if there was nothing, as always for optimizers that update in
  // each step().
  virtual bool flush() { return false; }
  // The micro-batches that it has counted so far in a window.
  virtual uint32_t position() const { return 0; }

  virtual void
  zero_grad();  // every grad() is undefined again: the gradients give their memory back

  void set_learning_rate(float rate);           // before lr_scale and schedule
  float base_learning_rate() const;             // the same
  void set_schedule(const Schedule& schedule);  // from the next update on
  void set_scaler(const LossScaler& scaler);    // starts it afresh
  const LossScaler& scaler() const;             // LossScaler::none() at first
  // Starts the scaler afresh in the middle of a run: for a loaded state with another scaler.
  virtual void restart_scaler() { set_scaler(scaler()); }
  void set_max_norm(float max_norm);  // clips the gradient's norm; 0: no clipping

  // Whether Autocast takes the 16-bit form of these f32 parameters from copies that are made once
  // per update, instead of casting in every forward pass. The default is `never`, and in Accumulate
  // outside segments, where this does not add to the peak. The bits are the same. Copies hold 2
  // bytes per element that is used in 16 bits, all the time; casts die during backward.
  void set_weight_copies(WeightCopyUse use) { parameters_->set_weight_copies(use); }
  // The use that was set.
  WeightCopyUse weight_copies() const { return parameters_->weight_copies(); }

  // These wait for the device.
  uint64_t updates() const;  // done
  uint64_t skipped() const;  // because of overflows
  float loss_scale() const;
  float grad_norm() const;       // at the last step: unscaled, averaged, before clipping
  double learning_rate() const;  // of the last update, or of the first if there was none
  UpdateCounts counts() const;   // of the loss scale's history
  std::string diagnose() const;  // explains these counts

  // For checkpoints: the tensors that continue this optimizer, "exp_avg.NAME" and so on, and
  // "master.NAME" of 16-bit parameters. Views. With a Shard, those on this rank; for a parameter
  // that ranks divide, "exp_avg.NAME[0:4096]" has these elements of the flattened state.
  using NamedState = std::vector<std::pair<std::string, Tensor>>;
  virtual NamedState state() const;
  // With a Shard, for ranks that save together: the part of state() that this rank must save (the
  // first rank also what all have), and the names that only other ranks have. Otherwise everything,
  // and no names.
  NamedState own_state() const;
  std::vector<std::string> states_elsewhere() const;
  // Copies a saved state into state(), whatever parts the saved one has; FileError for a missing
  // name or another shape.
  void load_state(const NamedState& saved);
  // The same for readers of files: the places to copy a saved state with these names into, and what
  // to do after that.
  virtual NamedState state_to_fill(const std::vector<std::string>& names);
  virtual void state_filled();

  static void copy_state(const NamedState& saved, const NamedState& target);  // the same for others

  // The groups as they were given, without frozen parameters.
  const std::vector<ParameterGroup>& groups() const { return parameters_->groups(); }

  const FlatParameters& parameters() const { return *parameters_; }  // where they lie
  const Tensor& control() const;                            // its buffer (STATE_*), on the device
  Device& device() const { return parameters_->device(); }  // of the parameters
  // The updates done, f32 [1], for an average that begins now. ValueError for 2^24 or more, which
  // f32 does not count. Waits for the device.
  Tensor copy_updates(const char* average) const;
  // Notifies an observer of every update, as long as it lives.
  void add_observer(std::weak_ptr<UpdateObserver> observer);

 protected:
  Optimizer(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule);
  Optimizer(Optimizer&&) noexcept;
  // Updates with the gradients divided by `weight`; false if there are none. `part` is PREPARE_ALL,
  // or PREPARE_WINDOW if the control buffer knows the weight.
  bool update(float weight, uint32_t part = 0);

  // The parts of update(), for optimizers that take gradients while backward makes them: its
  // preconditions, the notices before it, the rule for one run, and what follows an update.
  void check_update();
  void announce_update();
  UpdateTarget target(size_t run) const;  // offloaded states: where they lie
  void update_run(size_t run);
  void finish_update();

  // Makes each parameter a run of its own (FlatParameters::separate). AutogradError after an
  // update, or if something follows the updates already.
  void separate_parameters();
  void follow_parameters() { parameters_->follow_parameters(); }
  const UpdateControl& update_control() const { return *control_; }
  GradientTable& gradients() const { return *gradients_; }

  // When ranks share an update, what update_prepare reads of this rank's gradients (which may be
  // none) becomes that of all ranks, and so do the parameters. AutogradError here, for states that
  // are sharded but not shared.
  virtual void share_stats(const Tensor& stats);
  virtual void share_parameters() {}

  // For gradients that came from a file, or were scaled anew.
  void set_gradients_scaled(bool scaled) { has_scaled_ = scaled; }

 private:
  UpdateTarget target(size_t run, RunValues values) const;
  bool measure_by_runs();
  NamedState state(const std::function<bool(const std::string&, const Tensor&)>& is_wanted) const;
  void tell_observers(void (UpdateObserver::*message)());

  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<GradientTable> gradients_;
  std::unique_ptr<UpdateControl> control_;
  std::vector<std::weak_ptr<UpdateObserver>> observers_;
  bool has_scaled_ = false;               // backward() ran since the last update
  std::vector<std::string> saved_names_;  // of the state that is being loaded
};

// The 2-norm of all gradients together, including any loss scale. Parameters without a gradient
// count as zero. Infinite or NaN if a gradient is. Waits for the device.
float grad_norm(const std::vector<Tensor>& parameters);

}  // namespace rw
