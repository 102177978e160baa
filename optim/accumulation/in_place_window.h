// Windows whose sums are grad() while backward runs.
#pragma once

#include "gradient_window.h"

namespace rw {

// Backward adds each gradient to its sum. With one micro-batch, the gradients are the plain
// optimizer's, and no memory of theirs outlives a step.
class InPlaceWindow : public GradientWindow {
 public:
  InPlaceWindow(const FlatParameters& parameters, uint32_t micro_batches)
      : GradientWindow(parameters) {
    if (micro_batches > 1) parameters.stream_gradients();
    take();
  }
  std::string name() const override { return "accumulate.window"; }
  void begin_pass(bool) override { give_back(); }
  void end_micro_batch(const std::vector<float>&) override {
    take();
    parameters_.end_window();
  }
  void finish() override { give_back(); }
};

}  // namespace rw
