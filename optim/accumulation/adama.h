// AdamA: folds micro-batches into Adam's moments, so that no gradient is kept for a window.
#pragma once

#include "fused_backward.h"

namespace rw {

// As AdamWOptions: the decay is decoupled and needs no gradient.
struct AdamAOptions {
  float lr = 1e-3f;                    // learning rate
  float beta1 = 0.9f, beta2 = 0.999f;  // decay of the means of gradients and of their squares
  float eps = 1e-8f;                   // added to the root of the mean square
  float weight_decay = 0;              // decoupled: parameters shrink by lr * weight_decay
};

//! torch: none
// Adam with n micro-batches per update, in the memory of one micro-batch and its largest gradient
// (Zhang et al. 2023, "Adam Accumulation"): each gradient g_i / n goes into the moments when
// backward has completed it, and is dropped. The mean of gradients is that of Accumulate(Adam, n);
// the mean of squares takes in sum (g_i / n)^2 instead of (sum g_i / n)^2, which is what differs
// from the large batch: it is smaller where the g_i agree and so steps are longer, up to sqrt(n)
// times as long with n equal gradients. With n = 1 it is AdamW, to rounding.
//
// A gradient that is not finite, and what comes after it in its backward, is left out of its
// micro-batch; loss scale and skipped() count it, updates() counts windows. grad_norm() is that of
// the last micro-batch, divided by n. There is no clipping.
class AdamA : public InBackward {
 public:
  AdamA(std::vector<Tensor> parameters, uint32_t micro_batches, const AdamAOptions& options = {});
  AdamA(std::vector<ParameterGroup> groups, uint32_t micro_batches,
        const AdamAOptions& options = {});

  // One micro-batch, once per step(). `weight` is its share: those of a window add up to n.
  // ValueError with set_max_norm(). If it throws, it counts as a micro-batch if it had used a
  // gradient, and not at all otherwise.
  void backward(const Tensor& loss, float weight = 1) override;
  bool step() override;  // ends a micro-batch; at the n-th queues the update and returns true
  // Queues an update from the micro-batches since the last one, each of which counts as one n-th;
  // false if there were none. This is for the end of an epoch.
  bool flush() override;

  uint32_t micro_batches() const { return micro_batches_; }  // of a window
  uint32_t position() const override { return position_; }   // micro-batches in the window so far

  // As in Accumulate: a run resumes inside a window, bit for bit.
  NamedState state() const override;
  NamedState state_to_fill(const std::vector<std::string>& names) override;
  void state_filled() override;

 private:
  class Rule;
  AdamA(std::vector<ParameterGroup> groups, uint32_t micro_batches, Rule* rule);  // takes the rule
  void take(size_t run) override;
  void end_failed() override;

  uint32_t micro_batches_;
  const Rule* rule_;
  uint32_t position_ = 0;
  bool has_run_ = false, has_taken_ = false;  // of this micro-batch
  std::vector<bool> is_folded_;               // by run: it has gradients of this window
  Tensor window_;                             // of a window that is being loaded
};

}  // namespace rw
