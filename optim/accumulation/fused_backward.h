// Updates fused into backward: no gradient waits for the others.
#pragma once

#include <optional>

#include "../base/optimizer.h"
#include "gradient_hooks.h"

namespace rw {

// Optimizers that use each gradient when backward has completed it, and drop it then. Parameters
// are runs of their own; nothing else of the loop changes, and zero_grad() has nothing to do.
//
// A backward() that throws, because memory ran out or for another reason, has used the gradients
// that were complete by then, and their updates stay. It ends as step() would end it, as if no
// other gradient had arrived: incomplete gradients are dropped, and the next backward() starts
// anew. taken() names the parameters, and so does the text of OutOfMemory; the last one may be
// changed in part, if its own update ran out of memory. For all or nothing, resume from a
// snapshot.
class InBackward : public Optimizer {
 public:
  InBackward(InBackward&&) = delete;
  void zero_grad() override {}

  // The names of the parameters whose gradients the last backward() used, in its order.
  std::vector<std::string> taken() const;

 protected:
  explicit InBackward(Optimizer&& optimizer);
  InBackward(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule);
  // Runs backward from the loss with the gradient `seed`; take() receives each gradient, located.
  void run(const Tensor& loss, const Tensor& seed, bool retain = false);
  virtual void take(size_t run) = 0;
  void note(size_t run) { taken_.push_back(run); }  // take() is about to change something by it
  virtual void end_failed() = 0;  // the running backward threw: ends it with what it has taken
  void measure(size_t run);       // takes its part of the norm
  void judge(size_t run);         // the same, and an overflow in it goes into the control buffer
  const std::vector<size_t>& taken_runs() const { return taken_; }
  void count_missed(
      const std::vector<bool>& updated);  // counts an update that the other runs missed
  // Updates the control buffer's `part` (PREPARE_*) from the measurements; gradients are divided by
  // `weight`.
  void conclude(uint32_t part, float weight = 1);

 private:
  void set_up();
  void on_complete(size_t run, const Tensor& parameter);
  void abandon();

  std::optional<GradientHooks> hooks_;
  bool is_running_ = false;
  std::vector<size_t> taken_;  // runs
};

// How to decide about a whole update before its first gradient is used.
enum class FusedPasses : uint8_t {
  // One backward. A parameter whose gradient is not finite stays as it is, and so do those that
  // come after it in this backward; earlier ones stay updated, by finite gradients. The norm is
  // clipped by that of the previous update (the first update is not clipped).
  one,
  // Two backwards, the first of which only measures the norm: everything is as in the plain
  // optimizer, to the bit, including clipping and skipped updates. The passes cost twice as much;
  // activations stay until the second one, and segments are replayed in both.
  two,
};

//! torch: none
// FusedBackward(AdamW(parameters)) is an AdamW that updates each parameter inside backward(), when
// its gradient is complete: only the largest gradient is in memory instead of all of them. Without
// clipping and overflows the result is that of the plain optimizer to the bit. (Lv et al. 2023,
// LOMO; PyTorch's optimizer step in backward.) It works for every rule; the norms of LAMB and
// Adafactor are of one parameter, so they are exact, too.
//
//   optimizer.backward(loss);  // updates
//   optimizer.step();          // loss scale, schedule, averages; no gradients are left
//
// Make it from a new optimizer: parameters move, and averages follow this one. Each update takes
// one backward(); for micro-batches see Accumulate and AdamA. Kernels are queued per parameter
// instead of per group, so many small parameters cost more time.
class FusedBackward : public InBackward {
 public:
  explicit FusedBackward(Optimizer&& optimizer, FusedPasses passes = FusedPasses::one);

  // AutogradError if step() did not end the previous step. If it throws in the first of two passes,
  // nothing has changed.
  void backward(const Tensor& loss, float weight = 1) override;
  bool step() override;  // false: there was no backward(), or it reached no parameter

 private:
  enum class Pass : uint8_t { both, measure, update };
  void begin(uint32_t part);
  void take(size_t run) override;
  void end_failed() override { step(); }

  FusedPasses passes_;
  Pass pass_ = Pass::both;
  bool has_run_ = false, has_taken_ = false;
};

}  // namespace rw
