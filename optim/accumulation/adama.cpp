#include "optim/accumulation/adama.h"

#include <algorithm>

#include "core/tensor/launch.h"
#include "ops/ops.h"
#include "optim/base/update_control.h"
#include "optim/base/update_rule.h"

namespace rw {

class AdamA::Rule : public UpdateRule {
 public:
  explicit Rule(const AdamAOptions& options) : options_(options) {
    check_rates("adama", options.lr, options.weight_decay);
    check_moments("adama", options.beta1, options.beta2, options.eps);
    learning_rate = options.lr;
    weight_decay = options.weight_decay;
  }

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  // The moments take in a gradient; they decay with the first gradient of a window.
  void fold(const Target& t, bool is_first) const {
    for (const GradientTable::Part& part : t.gradients.parts(t.run))
      launch(
          "adama_fold",
          {in(part.gradients), inout(t.states[0]), inout(t.states[1]), in(t.table), in(t.control)},
          kernels::AdamaFoldParams{.offset = {},
                                   .first = part.first,
                                   .rows = part.rows,
                                   .shift = t.shift,
                                   .beta1 = options_.beta1,
                                   .beta2 = options_.beta2,
                                   .decay1 = is_first ? options_.beta1 : 1,
                                   .decay2 = is_first ? options_.beta2 : 1},
          {.threads = {part.rows << t.shift, 1, 1}});
  }

  void update(const Target& t) const override {
    const uint32_t n = count32(t.parameters.numel(), "adama");
    launch("adama", {inout(t.parameters), in(t.states[0]), in(t.states[1]), in(t.control)},
           kernels::AdamaParams{.offset = {},
                                .n = n,
                                .own = t.chunk(t.slots.front()),
                                .lr = t.learning_rate,
                                .beta1 = options_.beta1,
                                .beta2 = options_.beta2,
                                .eps = options_.eps,
                                .weight_decay = t.weight_decay},
           {.threads = {flat_threads(n), 1, 1}});
  }

 private:
  AdamAOptions options_;
};

namespace {

constexpr const char* window_name = "adama.window";

}  // namespace

AdamA::AdamA(std::vector<Tensor> parameters, uint32_t micro_batches, const AdamAOptions& options)
    : AdamA(one_group(std::move(parameters)), micro_batches, options) {}

AdamA::AdamA(std::vector<ParameterGroup> groups, uint32_t micro_batches,
             const AdamAOptions& options)
    : AdamA(std::move(groups), micro_batches, new Rule(options)) {}

AdamA::AdamA(std::vector<ParameterGroup> groups, uint32_t micro_batches, Rule* rule)
    : InBackward(std::move(groups), std::unique_ptr<UpdateRule>(rule)),
      micro_batches_(micro_batches),
      rule_(rule),
      is_folded_(parameters().runs().size()) {
  check(parameters().update_place() == MemoryPlace::device, "adama",
        "gradients are used as they come, which is not for the host's processor: offload states or "
        "parameters without their updates");
  check(micro_batches > 0, "adama", "at least one micro-batch per update is needed, got 0");
}

void AdamA::backward(const Tensor& loss, float weight) {
  check<AutogradError>(!has_run_, "adama",
                       "backward() must run once per step(); add the losses of a micro-batch");
  check(weight >= 0, "adama", "the weight must be >= 0, got {}", weight);
  check(update_control().max_norm == 0, "adama",
        "there must be no clipping by norm, got max_norm {}", update_control().max_norm);
  check_update();
  has_run_ = true;
  if (weight > 0) run(loss, update_control().seed(loss, weight));
}

void AdamA::take(size_t run) {
  if (!has_taken_) {
    gradients().clear_stats();
    follow_parameters();
    conclude(PREPARE_PART, static_cast<float>(micro_batches_));
    has_taken_ = true;
  }
  note(run);
  judge(run);
  rule_->fold(target(run), !is_folded_[run]);
  is_folded_[run] = true;
}

void AdamA::end_failed() {
  if (has_taken_)
    step();
  else
    has_run_ = false;
}

bool AdamA::step() {
  check<AutogradError>(std::exchange(has_run_, false), "adama",
                       "step() needs a backward(loss) before it");
  ++position_;
  if (std::exchange(has_taken_, false)) {
    const OpScope scope("optimizer");
    const PhaseScope phase(Phase::update);
    conclude(PREPARE_JUDGE, static_cast<float>(micro_batches_));
  }
  device().end_step_soon();  // a micro-batch repeats, as a step does
  return position_ == micro_batches_ && flush();
}

bool AdamA::flush() {
  check<AutogradError>(!has_run_, "adama", "step() must end the last micro-batch before flush()");
  position_ = 0;
  if (std::find(is_folded_.begin(), is_folded_.end(), true) == is_folded_.end()) return false;
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  announce_update();
  conclude(PREPARE_BEGIN);
  count_missed(is_folded_);
  for (size_t i = 0; i < is_folded_.size(); ++i)
    if (is_folded_[i]) update_run(i);
  is_folded_.assign(is_folded_.size(), false);
  finish_update();
  return true;
}

Optimizer::NamedState AdamA::state() const {
  check<AutogradError>(!has_run_, "adama",
                       "the state can be saved only after step() has ended the micro-batch");
  NamedState all = Optimizer::state();
  if (position_ == 0) return all;
  std::vector<int32_t> numbers = {static_cast<int32_t>(position_)};
  for (const bool folded : is_folded_) numbers.push_back(folded);
  Tensor window =
      empty({static_cast<int64_t>(numbers.size())}, DType::i32, device().shared_from_this());
  window.copy_from(std::span<const int32_t>(numbers));
  all.emplace_back(window_name, window);
  return all;
}

Optimizer::NamedState AdamA::state_to_fill(const std::vector<std::string>& names) {
  check<AutogradError>(position_ == 0 && !has_run_, "adama",
                       "a state can be loaded only between updates");
  window_ = {};
  NamedState all = Optimizer::state_to_fill(names);
  if (std::find(names.begin(), names.end(), window_name) == names.end()) return all;
  window_ =
      empty({1 + static_cast<int64_t>(is_folded_.size())}, DType::i32, device().shared_from_this());
  all.emplace_back(window_name, window_);
  return all;
}

void AdamA::state_filled() {
  Optimizer::state_filled();
  if (!window_) return;
  const std::vector<int32_t> numbers = std::exchange(window_, {}).to_ints();
  check<FileError>(numbers[0] > 0 && static_cast<uint32_t>(numbers[0]) < micro_batches_, "adama",
                   "the saved state is {} micro-batches into a window: windows must have more, "
                   "got {}",
                   numbers[0], micro_batches_);
  position_ = static_cast<uint32_t>(numbers[0]);
  for (size_t i = 0; i < is_folded_.size(); ++i) is_folded_[i] = numbers[i + 1] != 0;
}

}  // namespace rw
