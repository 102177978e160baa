// Accumulate: n micro-batches share one update, in the memory of one micro-batch.
#pragma once

#include <functional>

#include "rewind/optim/optimizer.h"

namespace rw {

class InBackward;

// What a micro-batch gives: its loss, of one element, and its weight as Accumulate::backward takes
// it.
struct MicroBatch {
  Tensor loss;
  float weight = 1;
};

// Accumulate(Adam(parameters), 100) is Adam that updates at every 100th step(), with the weighted
// mean of the 100 gradients: none is dropped, sums are f32, and bias correction, schedule, weight
// decay and clipping tick once per update. The loop stays that of the plain optimizer; with n = 1
// the results are the same to the bit. An overflow in any micro-batch voids its window. With n > 1
// the micro-batches of a window share 16-bit copies of the weights (set_weight_copies).
class Accumulate : public Optimizer {
 public:
  Accumulate(Optimizer&& optimizer, uint32_t micro_batches);
  Accumulate(Accumulate&&, uint32_t) = delete;
  Accumulate(InBackward&&, uint32_t) = delete;  // no gradient is left there to be added

  // The gradient of one micro-batch, once per step(). `weight` >= 0 is the number of samples or
  // tokens that the loss is the mean of; only the ratios within a window matter.
  void backward(const Tensor& loss, float weight = 1) override;
  // Ends a micro-batch; at the n-th queues the update and returns true.
  bool step() override;
  // A whole window whose micro-batches run side by side (core/ops/lockstep.h): BatchNorm normalises
  // over all of them, forward and backward, as it would in the one large batch; everything else is
  // as in backward() and step(). forward(i) runs micro-batch i. All of them are in memory where
  // they wait for each other, so give the model segments: what these keep is there for each
  // micro-batch, about as in the large batch. `count`: a shorter window, 0: all of it. Whether an
  // update was queued.
  bool run_together(const std::function<MicroBatch(uint32_t)>& forward, uint32_t count = 0);
  // Queues an update from the micro-batches since the last one, with their weights' sum as divisor.
  // False if there were none. For the end of an epoch.
  bool flush();
  // Between windows the gradients give their memory back; inside one nothing happens. A window that
  // finds some left starts from zero all the same.
  void zero_grad() override;

  // Starts the scaler afresh, as set_scaler(scaler()) does between windows; inside one its
  // gradients are scaled anew: for a loaded state that was of another scaler. Waits.
  void restart_scaler();

  uint32_t micro_batches() const { return micro_batches_; }  // of a window
  uint32_t position() const { return position_; }            // micro-batches in the window so far

  // Inside a window its gradients and how far it is are part of the state: a run goes on there bit
  // for bit. AutogradError between backward() and step(), and where a state is loaded into a
  // window.
  NamedState state() const override;
  NamedState state_to_fill(const std::vector<std::string>& names) override;
  void state_filled() override;

 private:
  void check_between_windows(const char* rule) const;
  void begin_window();
  void add(const Tensor& loss, float weight);

  uint32_t micro_batches_;
  uint32_t position_ = 0;
  bool has_gradient_ = false;  // of this micro-batch
  float unit_ = 0;    // first positive weight of the window; the others count relative to it
  double total_ = 0;  // sum of the window's relative weights
  Tensor window_;     // position, unit and total of a window that is being loaded
};

}  // namespace rw
