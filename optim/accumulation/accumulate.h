// Accumulate: n micro-batches share one update, in the memory of one micro-batch.
#pragma once

#include <functional>
#include <memory>

#include "../base/optimizer.h"

namespace rw {

class GradientExchange;
class GradientWindow;
class InBackward;

// The result of a micro-batch: its loss, of one element, and its weight as Accumulate::backward
// takes it.
struct MicroBatch {
  Tensor loss;
  float weight = 1;
};

//! torch: none
// Accumulate(Adam(parameters), 100) is an Adam that updates at every 100th step(), with the
// weighted mean of the 100 gradients: none is dropped, sums are f32, and bias correction, schedule,
// weight decay and clipping advance once per update. The loop stays that of the plain optimizer;
// with n = 1 the results are the same to the bit. An overflow in any micro-batch voids its window,
// or with set_overflow() only itself. With n > 1 the micro-batches of a window share 16-bit copies
// of the weights (set_weight_copies). Between micro-batches, gradients that other backward passes
// leave at the parameters, above all those of other optimizers, do not count; between backward()
// and step() gradients belong to the caller, as in PyTorch.
class Accumulate : public Optimizer {
 public:
  Accumulate(Optimizer&& optimizer, uint32_t micro_batches);
  Accumulate(Accumulate&&, uint32_t) = delete;
  Accumulate(InBackward&&, uint32_t) = delete;  // no gradient is left there to be added
  ~Accumulate() override;
  Accumulate(Accumulate&&) noexcept;

  // The gradient of one micro-batch, once per step(). `weight` >= 0 is the number of samples or
  // tokens that the loss is the mean of; only the ratios within a window matter. If it throws, its
  // window is lost: the next call begins another.
  void backward(const Tensor& loss, float weight = 1) override;
  // The same for several optimizers with different parameters of one model: one backward pass is a
  // micro-batch of them all, each has a step() of its own, and their windows may differ in length.
  // They share one fixed loss scale (LossScaler::none() or fixed()). AutogradError otherwise, and
  // for optimizers whose windows had other micro-batches, with other weights.
  static void backward(const std::vector<Accumulate*>& optimizers, const Tensor& loss,
                       float weight = 1);
  // Ends a micro-batch; at the n-th it queues the update and returns true.
  bool step() override;
  // Runs a whole window whose micro-batches run side by side (ops/lockstep.h): BatchNorm normalises
  // over all of them, forward and backward, as it would in the one large batch; everything else is
  // as in backward() and step(). forward(i) runs micro-batch i. All micro-batches are in memory
  // where they wait for each other, so give the model segments: the values that segments keep exist
  // for each micro-batch, about as in the large batch. `count` is a shorter window; 0 means all of
  // it. Returns whether an update was queued.
  bool run_together(const std::function<MicroBatch(uint32_t)>& forward, uint32_t count = 0);
  // Queues an update from the micro-batches since the last one, with the sum of their weights as
  // the divisor; false if there were none. This is for the end of an epoch.
  bool flush() override;
  // Frees the memory of the gradients, except for those of a window that is not full. A window that
  // finds gradients left over starts from zero all the same.
  void zero_grad() override;

  // Changes the length of windows, from the next one on: AutogradError inside a window. As in a new
  // Accumulate, n > 1 decides about 16-bit copies of the weights, unless set_weight_copies() has.
  void set_micro_batches(uint32_t micro_batches);

  // The micro-batches that a gradient which is not finite voids.
  enum class Overflow : uint8_t {
    voids_window,       // all of the window's micro-batches: the update is skipped
    voids_micro_batch,  // that one: the update is the mean of the others, by their weights
  };
  // Holds from the next window on; AutogradError inside a window. With voids_micro_batch the
  // gradients of a micro-batch are held beside the window's until step() has judged them, on the
  // device: 4 bytes more per parameter at the end of backward. A voided micro-batch is an overflow
  // for the loss scale, which changes at the end of the window as usual; a window with nothing else
  // is a skipped update. A parameter that only voided micro-batches reached has a gradient of zero.
  // Windows of one micro-batch and those of run_together() are voided as a whole.
  void set_overflow(Overflow what);
  Overflow overflow() const { return overflow_; }  // voids_window at first

  // How the sums are kept, from the next window on; AutogradError inside a window.
  // - f32, the default: 4 bytes per parameter; backward itself adds to them.
  // - f16 or bf16: 2 bytes. Each gradient is added when backward has completed it, and dropped, so
  //   only the largest f32 gradient exists at a time; grad() is undefined after backward(). The
  //   update reads f32, which takes 4 bytes more while it runs, without activations. The loss by
  //   rounding grows with n (docs/accumulation.md).
  // - compensated (Kahan 1965): 4 bytes again, since what rounding leaves out is kept beside the
  //   sums, and almost no loss.
  // Windows of one micro-batch are those of the plain optimizer all the same. DTypeError for a
  // dtype that is not a float, ValueError for f32 with compensation, and with overflows that void
  // a micro-batch.
  void set_buffer(DType dtype, bool compensated = false);

  // Makes ranks share windows, from the next one on; null if there are no other ranks. Each rank
  // has n micro-batches of a window, and the result has the bits of one process that runs them
  // all: the first of each rank, by rank, then their second. A rank without a micro-batch calls
  // backward({}, 0); after backward() grad() is undefined. Overflows are as above. AutogradError
  // inside a window, ValueError with a buffer of 16 bits. run_together() cannot be used then:
  // DataParallel joins BatchNorms.
  void set_exchange(std::shared_ptr<GradientExchange> exchange);

  // Starts the scaler afresh, as set_scaler(scaler()) does between windows. Inside a window its
  // gradients are scaled anew: for a loaded state with another scaler. Waits for the device.
  void restart_scaler() override;

  uint32_t micro_batches() const { return micro_batches_; }  // of a window
  uint32_t position() const override { return position_; }   // micro-batches in the window so far

  // Inside a window, its gradients and its position are part of the state: a run resumes there bit
  // for bit. AutogradError between backward() and step(), if a state is loaded into a window, and
  // inside a window that ranks share.
  NamedState state() const override;
  NamedState state_to_fill(const std::vector<std::string>& names) override;
  void state_filled() override;

 protected:
  void share_stats(const Tensor& stats) override;
  void share_parameters() override;

 private:
  static float check_shared(const std::vector<Accumulate*>& optimizers);
  void check_between_windows(const char* rule) const;
  std::unique_ptr<GradientWindow> make_window(bool is_together) const;
  void begin_window(bool is_together = false);
  void add_weights(const std::vector<float>& weights, float unit);
  void abandon_window();

  uint32_t micro_batches_;
  uint32_t position_ = 0;
  Overflow overflow_ = Overflow::voids_window;
  bool has_gradient_ = false;  // of this micro-batch
  DType buffer_ = DType::f32;
  bool is_compensated_ = false;
  std::vector<float> weights_;  // of this micro-batch, relative ones; by rank
  float unit_ = 0;    // first positive weight of the window; the others count relative to it
  double total_ = 0;  // sum of the window's relative weights
  std::unique_ptr<GradientWindow> window_;  // null between two
  std::shared_ptr<GradientExchange> exchange_;
  Tensor saved_;  // position, unit and total of a window that is being loaded
};

}  // namespace rw
