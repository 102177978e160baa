// Windows that ranks share.
#pragma once

#include <memory>

#include "../../core/tensor/launch.h"
#include "../../core/tensor/primitives.h"
#include "../base/update_control.h"
#include "gradient_exchange.h"
#include "gradient_window.h"

namespace rw {

// Sends gradients to other ranks while backward makes them, or after it if another optimizer shares
// the pass. Every rank adds those that count in the order of the ranks.
class SharedWindow : public GradientWindow {
 public:
  // `stats` has room for those of the gradients. `judge` judges micro-batches one by one; if null,
  // an overflow voids the window.
  SharedWindow(const FlatParameters& parameters, std::shared_ptr<GradientExchange> ranks,
               Tensor stats, const UpdateControl* judge)
      : GradientWindow(parameters),
        ranks_(std::move(ranks)),
        stats_(std::move(stats)),
        judge_(judge) {
    if (judge) judge->begin_judging();
    ranks_->begin();
  }
  std::string name() const override { return "accumulate.shared_window"; }
  void begin_pass(bool is_alone) override {
    parameters_.drop_gradients();
    if (is_alone) ranks_->begin_pass();
  }
  void end_pass() override { ranks_->end_pass(); }
  void end_micro_batch(const std::vector<float>& weights) override {
    std::vector<bool> counts;
    for (const float weight : weights) counts.push_back(weight > 0);
    if (judge_) judge(weights, counts);
    ranks_->add(counts);
  }
  void finish() override { ranks_->finish(); }
  bool is_judged() const override { return judge_ != nullptr; }

 private:
  // Tells all control buffers of all micro-batches, in one order.
  void judge(const std::vector<float>& weights, std::vector<bool>& counts) const {
    const std::vector<float> overflows = ranks_->overflows();
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      if (!counts[rank]) continue;
      fill_(stats_, overflows[rank]);
      judge_->prepare(PREPARE_MICRO_BATCH, weights[rank], stats_);
      counts[rank] = overflows[rank] == 0;
    }
  }

  std::shared_ptr<GradientExchange> ranks_;
  Tensor stats_;
  const UpdateControl* judge_;
};

}  // namespace rw
