#include "optim/accumulation/accumulate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "ops/lockstep.h"
#include "ops/ops.h"
#include "optim/accumulation/in_place_window.h"
#include "optim/accumulation/judged_window.h"
#include "optim/accumulation/narrow_window.h"
#include "optim/accumulation/shared_window.h"

namespace rw {

namespace {

void check_micro_batches(uint32_t n) {
  check(n > 0, "accumulate", "at least one micro-batch per update is needed, got 0");
}

void check_weight(float weight) {
  check(weight >= 0 && std::isfinite(weight), "accumulate", "the weight must be >= 0, got {}",
        weight);
}

}  // namespace

Accumulate::Accumulate(Optimizer&& optimizer, uint32_t micro_batches)
    : Optimizer(std::move(optimizer)), micro_batches_(micro_batches) {
  check_micro_batches(micro_batches);
  if (micro_batches > 1) set_weight_copies(WeightCopyUse::outside_segments);
}

Accumulate::~Accumulate() = default;
Accumulate::Accumulate(Accumulate&&) noexcept = default;

void Accumulate::set_micro_batches(uint32_t micro_batches) {
  check_micro_batches(micro_batches);
  check_between_windows("the length can change only between windows");
  const bool shared = std::exchange(micro_batches_, micro_batches) > 1;
  const WeightCopyUse own = shared ? WeightCopyUse::outside_segments : WeightCopyUse::never;
  if (shared != (micro_batches > 1) && weight_copies() == own)
    set_weight_copies(shared ? WeightCopyUse::never : WeightCopyUse::outside_segments);
}

void Accumulate::check_between_windows(const char* rule) const {
  check<AutogradError>(position_ == 0 && !has_gradient_, "accumulate",
                       "{}, got {} of {} micro-batches; flush() first", rule, position_,
                       micro_batches_);
}

void Accumulate::set_overflow(Overflow what) {
  check_between_windows("the effect of an overflow can change only between windows");
  check(what == Overflow::voids_window || buffer_ == DType::f32, "accumulate",
        "an overflow cannot void a micro-batch whose gradients are in a buffer of {} already",
        name(buffer_));
  overflow_ = what;
}

void Accumulate::set_buffer(DType dtype, bool compensated) {
  check<DTypeError>(is_float(dtype), "accumulate", "the buffer must be a float, got {}",
                    name(dtype));
  check_between_windows("the buffer can change only between windows");
  check(dtype != DType::f32 || !compensated, "accumulate",
        "a buffer that is compensated must be of 16 bits, got f32");
  check(dtype == DType::f32 || !exchange_, "accumulate",
        "sums that ranks share must be f32, got a buffer of {}", name(dtype));
  check(dtype == DType::f32 || overflow_ == Overflow::voids_window, "accumulate",
        "in a buffer of {} an overflow cannot void a micro-batch alone", name(dtype));
  buffer_ = dtype;
  is_compensated_ = compensated;
}

void Accumulate::set_exchange(std::shared_ptr<GradientExchange> exchange) {
  check_between_windows("ranks can join only between windows");
  check(buffer_ == DType::f32, "accumulate",
        "sums that ranks share must be f32, got a buffer of {}", name(buffer_));
  exchange_ = std::move(exchange);
}

void Accumulate::share_stats(const Tensor& stats) {
  if (!exchange_) return Optimizer::share_stats(stats);
  if (parameters().shard()) exchange_->share_stats(stats);
}

void Accumulate::share_parameters() {
  if (parameters().shard()) exchange_->share_parameters();
}

// With `is_together` its micro-batches run side by side and are not judged one by one.
std::unique_ptr<GradientWindow> Accumulate::make_window(bool is_together) const {
  const bool judges = overflow_ == Overflow::voids_micro_batch && !is_together;
  if (exchange_)
    return std::make_unique<SharedWindow>(parameters(), exchange_, gradients().all_stats(),
                                          judges ? &update_control() : nullptr);
  if (micro_batches_ > 1 && buffer_ != DType::f32)
    return std::make_unique<NarrowWindow>(parameters(), buffer_, is_compensated_);
  if (micro_batches_ > 1 && judges)
    return std::make_unique<JudgedWindow>(parameters(), gradients(), update_control());
  return std::make_unique<InPlaceWindow>(parameters(), micro_batches_);
}

void Accumulate::begin_window(bool is_together) {
  window_ = nullptr;
  Optimizer::zero_grad();
  unit_ = 0;
  total_ = 0;
  window_ = make_window(is_together);
}

// Drops the sums that a backward pass left when it threw: they are not valid gradients.
void Accumulate::abandon_window() {
  window_ = nullptr;
  Optimizer::zero_grad();
  if (exchange_) exchange_->begin();
  set_gradients_scaled(false);
  position_ = 0;
  total_ = 0;
  has_gradient_ = false;
}

// Relative weights keep scaled gradients as small as those of the plain optimizer, and keep equal
// weights exact. An empty micro-batch does not count: its mean loss may be NaN.
void Accumulate::add_weights(const std::vector<float>& weights, float unit) {
  weights_.assign(weights.size(), 0);
  if (unit == 0) return;
  unit_ = unit;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    weights_[rank] = weights[rank] / unit;
    total_ += weights_[rank];
  }
  set_gradients_scaled(true);
}

void Accumulate::backward(const Tensor& loss, float weight) {
  backward({this}, loss, weight);
}

// Checks what optimizers that share a backward pass must have in common. Returns the first weight
// of the windows that have begun, or 0 if none has.
float Accumulate::check_shared(const std::vector<Accumulate*>& optimizers) {
  check(!optimizers.empty(), "accumulate", "at least one optimizer is needed");
  float unit = 0;
  for (const Accumulate* one : optimizers) {
    check<AutogradError>(!one->has_gradient_, "accumulate",
                         "backward() must run once per step(); add the losses of a micro-batch");
    check<AutogradError>(!one->exchange_ == !optimizers[0]->exchange_, "accumulate",
                         "optimizers that share a backward pass must all have ranks, or none");
    check<AutogradError>(
        optimizers.size() == 1 ||
            (one->scaler() == optimizers[0]->scaler() && !one->scaler().is_dynamic),
        "accumulate", "optimizers that share a backward pass need one loss scale that is fixed");
    check(std::count(optimizers.begin(), optimizers.end(), one) == 1, "accumulate",
          "an optimizer must be given only once");
    const float own = one->position_ > 0 ? one->unit_ : 0;
    check<AutogradError>(own == 0 || unit == 0 || own == unit, "accumulate",
                         "optimizers that share a backward pass must share those before it in "
                         "their windows, too; their first weights are {} and {}",
                         unit, own);
    unit = own > 0 ? own : unit;
  }
  return unit;
}

void Accumulate::backward(const std::vector<Accumulate*>& optimizers, const Tensor& loss,
                          float weight) {
  check_weight(weight);
  float unit = check_shared(optimizers);
  const std::shared_ptr<GradientExchange>& exchange = optimizers[0]->exchange_;
  const std::vector<float> weights = exchange ? exchange->all(weight) : std::vector{weight};
  for (const float one : weights) unit = unit > 0 ? unit : one;
  try {
    for (Accumulate* one : optimizers) {
      if (one->position_ == 0) one->begin_window();
      one->add_weights(weights, unit);
      one->has_gradient_ = true;
      one->window_->begin_pass(optimizers.size() == 1);
    }
    if (weight > 0) optimizers[0]->Optimizer::backward(loss, weight / unit);
    for (Accumulate* one : optimizers) one->window_->end_pass();
  } catch (...) {
    for (Accumulate* one : optimizers) one->abandon_window();
    throw;
  }
}

bool Accumulate::run_together(const std::function<MicroBatch(uint32_t)>& forward, uint32_t count) {
  check_between_windows("run_together() must begin a window");
  check<AutogradError>(!exchange_, "accumulate",
                       "micro-batches of ranks must be run by backward() and step(); "
                       "DataParallel joins their BatchNorms");
  check(count <= micro_batches_, "accumulate", "a window has {} micro-batches, got {}",
        micro_batches_, count);
  begin_window(/* is_together */ true);
  try {
    window_->begin_pass(/* is_alone */ true);
    Lockstep(count ? count : micro_batches_).run([&](uint32_t i) {
      const MicroBatch one = forward(i);
      check_weight(one.weight);
      if (one.weight == 0) return;
      add_weights({one.weight}, unit_ > 0 ? unit_ : one.weight);
      Optimizer::backward(one.loss, one.weight / unit_);
    });
    window_->end_pass();
  } catch (...) {
    abandon_window();
    throw;
  }
  return flush();
}

bool Accumulate::step() {
  check<AutogradError>(has_gradient_, "accumulate", "step() needs a backward(loss) before it");
  has_gradient_ = false;
  ++position_;
  {
    const OpScope scope("accumulate");
    const PhaseScope phase(Phase::update);
    window_->end_micro_batch(weights_);
  }
  const bool is_full = position_ == micro_batches_;
  // A micro-batch repeats, like a step. It includes the values that ranks allocate to share an
  // update.
  if (!exchange_ || !is_full) device().end_step_soon();
  return is_full && flush();
}

bool Accumulate::flush() {
  check<AutogradError>(!has_gradient_, "accumulate",
                       "step() must end the last micro-batch before flush()");
  position_ = 0;
  const auto total = static_cast<float>(std::exchange(total_, 0));
  const std::unique_ptr<GradientWindow> window = std::move(window_);
  if (total == 0) return false;
  window->finish();
  return update(total, window->is_judged() ? PREPARE_WINDOW : PREPARE_ALL);
}

void Accumulate::zero_grad() {
  if (!has_gradient_) Optimizer::zero_grad();
}

void Accumulate::restart_scaler() {
  if (exchange_)
    check_between_windows("the scaler of ranks can be started afresh only between windows");
  const bool is_inside = position_ > 0 && total_ > 0;
  if (is_inside) {
    const NoGrad guard;
    const float factor = scaler().initial / loss_scale();
    for (size_t i = 0; i < parameters().slots().size(); ++i)
      for (Tensor part : {window_->sum(i), window_->rest(i)})
        if (part) part.copy_(affine(part, factor, 0));
  }
  set_gradients_scaled(false);
  set_scaler(scaler());
  set_gradients_scaled(is_inside);
}

namespace {

const std::string gradient_prefix = "accumulate.gradient.", rest_prefix = "accumulate.rest.";

}  // namespace

Optimizer::NamedState Accumulate::state() const {
  check<AutogradError>(
      !has_gradient_, "accumulate",
      "the state can be saved and loaded only after step() has ended the micro-batch");
  NamedState all = Optimizer::state();
  if (position_ == 0) return all;
  check<AutogradError>(!exchange_, "accumulate",
                       "windows that ranks share can be saved only between them, got {} of {} "
                       "micro-batches",
                       position_, micro_batches_);
  const auto total = std::bit_cast<std::array<int32_t, 2>>(total_);
  const int32_t numbers[] = {static_cast<int32_t>(position_), std::bit_cast<int32_t>(unit_),
                             total[0], total[1]};
  Tensor window = empty({4}, DType::i32, device().shared_from_this());
  window.copy_from(std::span<const int32_t>(numbers));
  all.emplace_back(window_->name(), window);
  const std::vector<FlatParameters::Slot>& slots = parameters().slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (const Tensor sum = window_->sum(i))
      all.emplace_back(gradient_prefix + slots[i].name, sum.detach());
    if (const Tensor rest = window_->rest(i))
      all.emplace_back(rest_prefix + slots[i].name, rest.detach());
  }
  return all;
}

Optimizer::NamedState Accumulate::state_to_fill(const std::vector<std::string>& names) {
  check_between_windows("a state can be loaded only between updates");
  saved_ = {};
  NamedState all = Optimizer::state_to_fill(names);
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto saved = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("accumulate.") && name.ends_with("window");
  });
  if (saved == names.end()) return all;
  check<FileError>(
      !exchange_, "accumulate",
      "ranks can resume only between windows, but the saved state is inside one: let a "
      "single process finish it");
  begin_window();
  const std::string own = window_->name();
  if (own != *saved) abandon_window();
  check<FileError>(
      own == *saved, "accumulate",
      "the saved state has '{}', one of these options has '{}': see set_overflow() and "
      "set_buffer()",
      *saved, own);
  saved_ = empty({4}, DType::i32, device().shared_from_this());
  all.emplace_back(own, saved_);
  const std::vector<FlatParameters::Slot>& slots = parameters().slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (const std::string name = gradient_prefix + slots[i].name; has(name))
      all.emplace_back(name, window_->begin_sum(i));
    if (const Tensor rest = window_->rest(i)) all.emplace_back(rest_prefix + slots[i].name, rest);
  }
  return all;
}

void Accumulate::state_filled() {
  Optimizer::state_filled();
  if (!saved_) return;
  const std::vector<int32_t> numbers = std::exchange(saved_, {}).to_ints();
  unit_ = std::bit_cast<float>(numbers[1]);
  total_ = std::bit_cast<double>(std::array{numbers[2], numbers[3]});
  const auto position = static_cast<uint32_t>(numbers[0]);
  const bool fits = position > 0 && position < micro_batches_ && unit_ >= 0 &&
                    std::isfinite(unit_) && total_ >= 0 && std::isfinite(total_);
  if (!fits) abandon_window();
  check<FileError>(
      fits, "accumulate",
      "the saved state is {} micro-batches into a window: windows must have more, got {}", position,
      micro_batches_);
  position_ = position;
  if (total_ > 0) set_gradients_scaled(true);
}

}  // namespace rw
