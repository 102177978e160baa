// Windows that leave out micro-batches that overflow.
#pragma once

#include "../../core/tensor/launch.h"
#include "../base/gradient_table.h"
#include "../base/update_control.h"
#include "gradient_window.h"

namespace rw {

// Holds the gradients of a micro-batch beside the sums until all have arrived and the device has
// judged them: they and their weight count, or neither does.
class JudgedWindow : public GradientWindow {
 public:
  JudgedWindow(const FlatParameters& parameters, GradientTable& gradients,
               const UpdateControl& control)
      : GradientWindow(parameters), gradients_(gradients), control_(control) {
    control.begin_judging();
    parameters.place_gradients();
    take();
  }
  std::string name() const override { return "accumulate.judged_window"; }
  void begin_pass(bool) override { parameters_.drop_gradients(); }
  void end_micro_batch(const std::vector<float>& weights) override {
    if (weights[0] > 0) {
      if (!gradients_.locate()) gradients_.clear_stats();
      control_.prepare(PREPARE_MICRO_BATCH, weights[0], gradients_.stats());
      fold();
    }
    parameters_.drop_gradients();
  }
  void finish() override { give_back(); }
  bool is_judged() const override { return true; }

 private:
  // Adds the gradients in grad(), which the table has located, unless the micro-batch is void.
  void fold() {
    for (size_t i = 0; i < parameters_.runs().size(); ++i) {
      const FlatParameters::Run& run = parameters_.runs()[i];
      const Tensor sums =
          make_view(kept_[run.first_slot].place, {run.elements.size}, {1}, run.elements.offset);
      for (const GradientTable::Part& part : gradients_.parts(i))
        launch(
            "window_fold",
            {inout(sums), in(part.gradients), in(gradients_.table()), in(control_.buffer())},
            kernels::WindowFoldParams{
                .offset = {}, .first = part.first, .rows = part.rows, .shift = gradients_.shift()},
            {.threads = {part.rows << gradients_.shift(), 1, 1}});
    }
    for (size_t i = 0; i < kept_.size(); ++i)
      if (slots()[i].parameter.grad()) kept_[i].sum = kept_[i].place;
  }

  GradientTable& gradients_;
  const UpdateControl& control_;
};

}  // namespace rw
