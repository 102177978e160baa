#include "optim/accumulation/accumulate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "ops/lockstep.h"
#include "ops/ops.h"
#include "optim/accumulation/gradient_window.h"

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
    : Optimizer(std::move(optimizer)),
      micro_batches_(micro_batches),
      sums_(std::make_unique<GradientWindow>()) {
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
  check_between_windows("what an overflow voids can change only between windows");
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
  if (exchange_) return;
  hooks_ = {};
  if (dtype == DType::f32) return;
  hooks_ = GradientHooks(parameters().slots(),
                         [sums = sums_.get()](size_t slot, const Tensor& parameter) {
                           sums->collect(parameter, slot);
                         });
}

void Accumulate::set_exchange(std::shared_ptr<GradientExchange> exchange) {
  check_between_windows("ranks can join only between windows");
  check(buffer_ == DType::f32, "accumulate",
        "sums that ranks share must be f32, got a buffer of {}", name(buffer_));
  exchange_ = std::move(exchange);
  hooks_ = {};
  if (exchange_)
    hooks_ = GradientHooks(parameters().slots(),
                           [ranks = exchange_](size_t slot, const Tensor&) { ranks->take(slot); });
}

Accumulate::Sums Accumulate::usual_sums() const {
  if (exchange_) return Sums::shared;
  if (micro_batches_ == 1) return Sums::in_place;
  if (buffer_ != DType::f32) return Sums::narrow;
  return overflow_ == Overflow::voids_micro_batch ? Sums::judged : Sums::in_place;
}

void Accumulate::share_stats(const Tensor& stats) {
  if (!exchange_) return Optimizer::share_stats(stats);
  if (parameters().shard()) exchange_->share_stats(stats);
}

void Accumulate::share_parameters() {
  if (parameters().shard()) exchange_->share_parameters(parameters());
}

bool Accumulate::voids_micro_batches() const {
  return kind_ == Sums::judged ||
         (kind_ == Sums::shared && overflow_ == Overflow::voids_micro_batch);
}

void Accumulate::set_collecting(bool collects) {
  sums_->set_collecting(collects && kind_ == Sums::narrow);
}

void Accumulate::end_pass() {
  set_collecting(false);
  if (exchange_) exchange_->end_pass();
}

void Accumulate::begin_window(Sums kind) {
  sums_->clear();
  Optimizer::zero_grad();
  unit_ = 0;
  total_ = 0;
  shares_ = {0};
  kind_ = kind;
  static_assert(STATE_WINDOW_VOIDED == STATE_WINDOW_WEIGHT + 1);
  if (voids_micro_batches()) fill_(make_view(control(), {2}, {1}, STATE_WINDOW_WEIGHT), 0);
  if (kind == Sums::shared) return exchange_->begin();
  if (micro_batches_ == 1) return;
  place_gradients(kind == Sums::narrow ? buffer_ : DType::f32);
  if (kind == Sums::in_place) return;
  const GradientWindow::Slots& slots = parameters().slots();
  sums_->take(slots);
  if (kind == Sums::narrow && is_compensated_) {
    place_gradients(buffer_);
    sums_->take_rests(slots);
  }
}

// On the device: its gradients and its weight count, or neither does.
void Accumulate::judge_micro_batch() {
  const OpScope scope("accumulate");
  const PhaseScope phase(Phase::update);
  const float share = std::exchange(shares_[0], 0);
  if (share > 0) {
    if (!gradients().locate()) gradients().clear_stats();
    prepare(PREPARE_MICRO_BATCH, share, gradients().stats());
    sums_->fold(parameters(), gradients(), control());
  }
  Optimizer::zero_grad();
}

// What counts is added on every rank in the order of the ranks.
void Accumulate::share_micro_batch() {
  const OpScope scope("accumulate");
  const PhaseScope phase(Phase::update);
  std::vector<bool> counts;
  for (const float share : shares_) counts.push_back(share > 0);
  if (voids_micro_batches()) judge_ranks(counts);
  exchange_->add(parameters(), counts);
}

// All control buffers are told of all micro-batches, in one order.
void Accumulate::judge_ranks(std::vector<bool>& counts) {
  const std::vector<float> all = exchange_->overflows();
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    if (!counts[rank]) continue;
    fill_(gradients().all_stats(), all[rank]);
    prepare(PREPARE_MICRO_BATCH, shares_[rank], gradients().all_stats());
    counts[rank] = all[rank] == 0;
  }
}

// What a backward pass that threw left of the sums is not theirs any more.
void Accumulate::abandon_window() {
  sums_->clear();
  Optimizer::zero_grad();
  if (exchange_) exchange_->begin();
  set_gradients_scaled(false);
  position_ = 0;
  total_ = 0;
  has_gradient_ = false;
}

// Relative weights keep scaled gradients as small as those of the plain optimizer, and equal
// weights exact. An empty micro-batch counts for nothing: its mean loss may well be NaN.
void Accumulate::add_weights(const std::vector<float>& weights, float unit) {
  shares_.assign(weights.size(), 0);
  if (unit == 0) return;
  unit_ = unit;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    shares_[rank] = weights[rank] / unit;
    total_ += shares_[rank];
  }
  set_gradients_scaled(true);
}

void Accumulate::backward(const Tensor& loss, float weight) {
  backward({this}, loss, weight);
}

// What optimizers that share a backward pass must be. Returns the first weight of the windows that
// have begun, 0 where none has.
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
          "an optimizer must be there once");
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
      if (one->position_ == 0)
        one->begin_window(one->usual_sums());
      else if (one->kind_ == Sums::in_place)
        one->sums_->give_back(one->parameters().slots());
      else
        one->Optimizer::zero_grad();
      one->add_weights(weights, unit);
      one->has_gradient_ = true;
      one->set_collecting(true);
    }
    if (exchange && optimizers.size() == 1) exchange->begin_pass();
    if (weight > 0) optimizers[0]->Optimizer::backward(loss, weight / unit);
    for (Accumulate* one : optimizers) one->end_pass();
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
  begin_window(usual_sums() == Sums::narrow ? Sums::narrow : Sums::in_place);
  set_collecting(true);
  try {
    Lockstep(count ? count : micro_batches_).run([&](uint32_t i) {
      const MicroBatch one = forward(i);
      check_weight(one.weight);
      if (one.weight == 0) return;
      add_weights({one.weight}, unit_ > 0 ? unit_ : one.weight);
      Optimizer::backward(one.loss, one.weight / unit_);
    });
  } catch (...) {
    abandon_window();
    throw;
  }
  set_collecting(false);
  return flush();
}

bool Accumulate::step() {
  check<AutogradError>(has_gradient_, "accumulate", "step() needs a backward(loss) before it");
  has_gradient_ = false;
  ++position_;
  if (kind_ == Sums::judged) judge_micro_batch();
  if (kind_ == Sums::shared) share_micro_batch();
  const bool is_full = position_ == micro_batches_;
  // A micro-batch repeats, as a step does. What ranks take to share an update belongs to it.
  if (kind_ != Sums::shared || !is_full) device().end_step_soon();
  if (is_full) return flush();
  if (kind_ == Sums::in_place) sums_->take(parameters().slots());
  if (kind_ == Sums::shared) Optimizer::zero_grad();
  return false;
}

bool Accumulate::flush() {
  check<AutogradError>(!has_gradient_, "accumulate",
                       "step() must end the last micro-batch before flush()");
  position_ = 0;
  const auto total = static_cast<float>(std::exchange(total_, 0));
  if (total > 0 && kind_ == Sums::narrow) {
    Optimizer::zero_grad();
    place_gradients();
    sums_->widen(parameters().slots());
  }
  sums_->give_back(parameters().slots());
  if (total == 0) return false;
  if (kind_ == Sums::shared) exchange_->finish(parameters());
  return update(total, voids_micro_batches() ? PREPARE_WINDOW : PREPARE_ALL);
}

void Accumulate::zero_grad() {
  if (!has_gradient_) Optimizer::zero_grad();
}

void Accumulate::restart_scaler() {
  if (kind_ == Sums::shared)
    check_between_windows("the scaler of ranks can be started afresh only between windows");
  const bool is_inside = position_ > 0 && total_ > 0;
  if (is_inside) {
    const NoGrad guard;
    const float factor = scaler().initial / loss_scale();
    const GradientWindow::Slots& slots = parameters().slots();
    for (size_t i = 0; i < slots.size(); ++i)
      for (Tensor part : {sums_->sum(slots, i), sums_->rest(i)})
        if (part) part.copy_(affine(part, factor, 0));
  }
  set_gradients_scaled(false);
  set_scaler(scaler());
  set_gradients_scaled(is_inside);
}

namespace {

const std::string gradient_prefix = "accumulate.gradient.", rest_prefix = "accumulate.rest.";

}  // namespace

// Of the saved window: it says how the sums in it came about.
const char* Accumulate::window_name(Sums kind) const {
  if (kind == Sums::judged) return "accumulate.judged_window";
  if (kind == Sums::in_place) return "accumulate.window";
  if (kind == Sums::shared) return "accumulate.shared_window";
  if (buffer_ == DType::f16)
    return is_compensated_ ? "accumulate.compensated_f16_window" : "accumulate.f16_window";
  return is_compensated_ ? "accumulate.compensated_bf16_window" : "accumulate.bf16_window";
}

Optimizer::NamedState Accumulate::state() const {
  check<AutogradError>(
      !has_gradient_, "accumulate",
      "the state can be saved and loaded only after step() has ended the micro-batch");
  NamedState all = Optimizer::state();
  if (position_ == 0) return all;
  check<AutogradError>(kind_ != Sums::shared, "accumulate",
                       "windows that ranks share can be saved only between them, got {} of {} "
                       "micro-batches",
                       position_, micro_batches_);
  const auto total = std::bit_cast<std::array<int32_t, 2>>(total_);
  const int32_t numbers[] = {static_cast<int32_t>(position_), std::bit_cast<int32_t>(unit_),
                             total[0], total[1]};
  Tensor window = empty({4}, DType::i32, device().shared_from_this());
  window.copy_from(std::span<const int32_t>(numbers));
  all.emplace_back(window_name(kind_), window);
  const GradientWindow::Slots& slots = parameters().slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (const Tensor sum = sums_->sum(slots, i))
      all.emplace_back(gradient_prefix + slots[i].name, sum.detach());
    if (const Tensor rest = sums_->rest(i))
      all.emplace_back(rest_prefix + slots[i].name, rest.detach());
  }
  return all;
}

Optimizer::NamedState Accumulate::state_to_fill(const std::vector<std::string>& names) {
  check_between_windows("a state can be loaded only between updates");
  NamedState all = Optimizer::state();
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto saved = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("accumulate.") && name.ends_with("window");
  });
  if (saved == names.end()) return all;
  const Sums kind = usual_sums();
  check<FileError>(kind != Sums::shared, "accumulate",
                   "ranks go on between windows only, the saved state is inside of one: let one "
                   "process end it");
  check<FileError>(
      *saved == window_name(kind), "accumulate",
      "the saved state has '{}', one of these options has '{}': see set_overflow() and "
      "set_buffer()",
      *saved, window_name(kind));
  begin_window(kind);
  const GradientWindow::Slots& slots = parameters().slots();
  if (kind == Sums::in_place) sums_->take(slots);
  window_ = empty({4}, DType::i32, device().shared_from_this());
  all.emplace_back(*saved, window_);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (const std::string name = gradient_prefix + slots[i].name; has(name))
      all.emplace_back(name, sums_->begin_sum(slots, i));
    if (const Tensor rest = sums_->rest(i)) all.emplace_back(rest_prefix + slots[i].name, rest);
  }
  return all;
}

void Accumulate::state_filled() {
  if (!window_) return;
  const std::vector<int32_t> numbers = std::exchange(window_, {}).to_ints();
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
