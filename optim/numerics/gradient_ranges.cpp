#include "optim/numerics/gradient_ranges.h"

#include <algorithm>

#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"

namespace rw {

// The optimizer announces its updates to this.
class GradientRanges::Rows : public UpdateObserver {
 public:
  Rows(const Optimizer& optimizer, uint32_t every) : control_(optimizer.control()), every_(every) {
    check<RankError>(!optimizer.parameters().shard(), "gradient_ranges",
                     "all gradients must be here, got an optimizer whose states ranks keep in "
                     "parts");
    for (const FlatParameters::Slot& slot : optimizer.parameters().slots())
      parameters_.push_back({slot.parameter, slot.name});
    const PurposeScope purpose(Purpose::optimizer);
    const auto device = optimizer.device().shared_from_this();
    rows_ = empty({2, static_cast<int64_t>(parameters_.size()), RANGE_SIZE}, DType::i32, device);
    scale_ = empty({1}, DType::f32, device);
    fill_(rows_, 0);
    fill_(scale_, 1);
  }

  void before_update() override {
    if (queued_++ % every_ == 0) measure();
  }
  void after_update() override {}

  // Measures the current gradients with the current loss scale.
  void measure() {
    const OpScope scope("gradient_ranges");
    fill_(rows_, 0);
    copy_into(make_view(control_, {1}, {1}, STATE_SCALE), scale_);
    const auto count = static_cast<int64_t>(parameters_.size());
    for (int64_t i = 0; i < count; ++i) {
      const Tensor gradient = parameters_[static_cast<size_t>(i)].tensor.grad();
      if (!gradient.defined() || gradient.numel() == 0) continue;
      for (const bool scaled : {false, true}) {
        const int64_t row = scaled ? count + i : i;
        count_range(gradient, make_view(rows_, {RANGE_SIZE}, {1}, row * RANGE_SIZE),
                    least_normal(DType::f16), scaled, control_);
      }
    }
  }

  std::vector<GradientRange> read() const {
    const std::vector<int32_t> words = rows_.to_ints();
    const float scale = scale_.item();
    const auto row = [&](size_t i) {
      return range_of_row(std::span(words).subspan(i * RANGE_SIZE, RANGE_SIZE));
    };
    std::vector<GradientRange> ranges;
    for (size_t i = 0; i < parameters_.size(); ++i)
      ranges.push_back({.name = parameters_[i].name,
                        .scale = scale,
                        .stored = row(i),
                        .unscaled = row(parameters_.size() + i).denormals});
    return ranges;
  }

 private:
  struct Parameter {
    Tensor tensor;
    std::string name;
  };
  std::vector<Parameter> parameters_;
  Tensor control_;  // the optimizer's
  Tensor rows_;   // i32 [2, parameters, RANGE_SIZE]: as they are, then with limits that are scaled
  Tensor scale_;  // f32 [1]
  uint32_t every_, queued_ = 0;
};

GradientRanges::GradientRanges(Optimizer& optimizer, uint32_t every)
    : rows_(std::make_shared<Rows>(optimizer, every)) {
  check(every > 0, "gradient_ranges", "every must be positive, got 0");
  optimizer.add_observer(rows_);
}

std::vector<GradientRange> GradientRanges::read() const {
  return rows_->read();
}

std::vector<GradientRange> gradient_ranges(const Optimizer& optimizer) {
  GradientRanges::Rows rows(optimizer, 1);
  rows.measure();
  return rows.read();
}

std::string gradient_range_table(const std::vector<GradientRange>& ranges) {
  size_t width = 9;
  for (const GradientRange& r : ranges) width = std::max(width, r.name.size());
  std::string text = fmt::format(
      "gradients without their loss scale of {:g}, and with it (scaled); denormal is meant for "
      "f16\n"
      "{:<{}} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>7} {:>10}\n",
      ranges.empty() ? 1 : ranges.front().scale, "parameter", width, "max", "scaled", "min > 0",
      "scaled", "zero", "denormal", "scaled", "not finite");
  for (const GradientRange& r : ranges) {
    const uint64_t elements = r.stored.elements();
    if (elements == 0) {
      text += fmt::format("{:<{}} no gradient\n", r.name, width);
      continue;
    }
    const auto share = [&](uint64_t count) {
      return fmt::format("{:.1f} %",
                         100 * static_cast<double>(count) / static_cast<double>(elements));
    };
    text += fmt::format("{:<{}} {:>9.2e} {:>9.2e} {:>9.2e} {:>9.2e} {:>7} {:>8} {:>7} {:>10}\n",
                        r.name, width, r.stored.largest / r.scale, r.stored.largest,
                        r.stored.least / r.scale, r.stored.least, share(r.stored.zeros),
                        share(r.unscaled), share(r.stored.denormals), r.stored.not_finite());
  }
  return text;
}

}  // namespace rw
