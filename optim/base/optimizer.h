// Optimizer: what every optimizer does around its update rule. A step is queued, never waited for:
// overflow, loss scale, clipping and schedule are decided on the device.
#pragma once

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

// Follows an optimizer's updates. One that is skipped is announced too: the device alone knows.
class UpdateObserver {
 public:
  virtual ~UpdateObserver() = default;
  // Throws where an update must not be made now. Called before anything is changed.
  virtual void check_update() {}
  // Around the kernels of an update, when they are queued.
  virtual void before_update() = 0;
  virtual void after_update() = 0;
};

// Changes parameters by their gradients. What derives from it adds the rule: SGD, Adam, AdamW,
// Lamb, Lion, RMSprop, Adagrad, Adafactor, Muon.
class Optimizer {
 public:
  virtual ~Optimizer();

  // loss.backward() with the gradient multiplied by the loss scale, as it is on the device now, and
  // by `weight`. The loss has one element.
  virtual void backward(const Tensor& loss, float weight = 1);
  // Queues an update from the collected gradients. It is skipped on the device, state included, if
  // a gradient is not finite. Parameters without a gradient stay as they are, as in PyTorch. False:
  // nothing was queued (no parameter has a gradient; Accumulate, inside a window). It ends a step
  // of the device's account: what repeats from here on is packed as it was (Device::end_step).
  virtual bool step();

  // Queues an update from what step() has only counted so far (Accumulate: the end of an epoch in a
  // window). False: there was nothing, as always in optimizers that update in each step().
  virtual bool flush() { return false; }
  // Micro-batches that it has counted so.
  virtual uint32_t position() const { return 0; }

  virtual void
  zero_grad();  // every grad() is undefined again: the gradients give their memory back

  void set_learning_rate(float rate);           // before lr_scale and schedule
  float base_learning_rate() const;             // the same
  void set_schedule(const Schedule& schedule);  // from the next update on
  void set_scaler(const LossScaler& scaler);    // starts it afresh
  const LossScaler& scaler() const;             // LossScaler::none() at first
  // Starts the scaler afresh where the optimizer stands: for a loaded state that was of another
  // scaler.
  virtual void restart_scaler() { set_scaler(scaler()); }
  void set_max_norm(float max_norm);  // clips the gradient's norm; 0: no clipping

  // Whether Autocast takes the 16-bit form of these f32 parameters from copies that are made once
  // per update, instead of casting in every forward pass. `never` at first, and outside of segments
  // in Accumulate, where nothing of it adds to the peak. The bits are the same. Copies hold 2 bytes
  // per element that is used in 16 bits, all the time; casts die as backward goes on.
  void set_weight_copies(WeightCopyUse use) { parameters_->set_weight_copies(use); }
  WeightCopyUse weight_copies() const { return parameters_->weight_copies(); }  // what was set

  // These wait for the device.
  uint64_t updates() const;  // done
  uint64_t skipped() const;  // because of overflows
  float loss_scale() const;
  float grad_norm() const;       // at the last step: unscaled, averaged, before clipping
  double learning_rate() const;  // of the last update, or of the first if there was none
  UpdateCounts counts() const;   // of the loss scale's history
  std::string diagnose() const;  // what it means

  // For checkpoints: the tensors that continue this optimizer, "exp_avg.NAME" and so on, and
  // "master.NAME" of 16-bit parameters. Views. With a Shard those that are here; of a parameter
  // that ranks divide "exp_avg.NAME[0:4096]", the elements of the flattened state that are.
  using NamedState = std::vector<std::pair<std::string, Tensor>>;
  virtual NamedState state() const;
  // With a Shard, for ranks that save together: of state(), what this one has to save, the first
  // one with what all have; and the names that state() has on others only. Otherwise all and none.
  NamedState own_state() const;
  std::vector<std::string> states_elsewhere() const;
  // Copies into state(), whichever parts the saved state has; throws FileError for a missing name
  // or another shape.
  void load_state(const NamedState& saved);
  // The same for readers of files: what a saved state of these names is to be copied into, and
  // what follows when that has been done.
  virtual NamedState state_to_fill(const std::vector<std::string>& names);
  virtual void state_filled() {}

  static void copy_state(const NamedState& saved, const NamedState& target);  // the same for others

  // As they were given, without frozen parameters.
  const std::vector<ParameterGroup>& groups() const { return parameters_->groups(); }

  const FlatParameters& parameters() const { return *parameters_; }  // where they lie
  const Tensor& control() const;                            // f32 [STATE_SIZE], on the device
  Device& device() const { return parameters_->device(); }  // of the parameters
  // Tells it of every update, as long as it lives.
  void add_observer(std::weak_ptr<UpdateObserver> observer);

 protected:
  Optimizer(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule);
  Optimizer(Optimizer&&) noexcept;
  // An update with the gradients divided by `weight`; false if there are none. `part`: PREPARE_ALL,
  // or PREPARE_WINDOW, where the control buffer knows the weight.
  bool update(float weight, uint32_t part = 0);

  // update() in parts, for optimizers that take gradients while backward makes them: what must hold
  // before it; what its observers are told before it; the rule, of one run; and what follows an
  // update.
  void check_update();
  void announce_update();
  UpdateTarget target(size_t run) const;  // offloaded states: where they lie
  void update_run(size_t run);
  void finish_update();

  // Each parameter becomes a run of its own (FlatParameters::separate). AutogradError after an
  // update, or where something follows the updates already.
  void separate_parameters();
  void follow_parameters() { parameters_->follow_parameters(); }
  const UpdateControl& update_control() const { return *control_; }
  GradientTable& gradients() const { return *gradients_; }

  // Where ranks share an update: what update_prepare reads of the gradients (of those of this rank,
  // which may have none) becomes that of all, and so do the parameters. AutogradError here, for
  // states that are sharded and nobody shares.
  virtual void share_stats(const Tensor& stats);
  virtual void share_parameters() {}

  // Where gradients came from a file, or were scaled anew.
  void set_gradients_scaled(bool scaled) { has_scaled_ = scaled; }

 private:
  UpdateTarget target(size_t run, RunValues values) const;
  void tell_observers(void (UpdateObserver::*message)());

  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<GradientTable> gradients_;
  std::unique_ptr<UpdateControl> control_;
  std::vector<std::weak_ptr<UpdateObserver>> observers_;
  bool has_scaled_ = false;  // backward() ran since the last update
};

// The 2-norm of all gradients together, as they are (with any loss scale in them). Parameters
// without a gradient count as zero. Infinite or NaN if a gradient is. Waits for the device.
float grad_norm(const std::vector<Tensor>& parameters);

}  // namespace rw
