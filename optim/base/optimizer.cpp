#include "optim/base/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"
#include "ops/ops.h"
#include "optim/base/state_parts.h"
#include "optim/base/state_staging.h"
#include "optim/base/update_control.h"
#include "optim/base/update_rule.h"
#include "planner/environment.h"

namespace rw {

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::unique_ptr<UpdateRule> rule)
    : rule_(std::move(rule)),
      parameters_(std::make_unique<FlatParameters>(
          placed_within(memory_of_thread(), std::move(groups), *rule_), *rule_)),
      gradients_(std::make_unique<GradientTable>(GradientTable::of(*parameters_))) {
  const PurposeScope purpose(Purpose::optimizer);
  const PlaceScope place(parameters_->update_place());
  control_ = std::make_unique<UpdateControl>(device(), gradients_->rows());
  rule_->prepare(*gradients_);
  apply_environment();
}

void Optimizer::separate_parameters() {
  check<AutogradError>(updates() + skipped() == 0 && !has_scaled_, "optimizer",
                       "an optimizer must be new, got one after {} updates", updates());
  check<AutogradError>(!parameters_->shard(), "optimizer",
                       "states that ranks keep in parts need Accumulate and DataParallel");
  check<AutogradError>(
      observers_.empty(), "optimizer",
      "averages and monitors must be made of this optimizer, not of the inner one");
  parameters_->separate();
  const PlaceScope place(parameters_->update_place());
  // Chunks keep their numbers, by which the control buffer knows them.
  gradients_ = std::make_unique<GradientTable>(GradientTable::of(*parameters_));
  rule_->prepare(*gradients_);
}

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;

void Optimizer::set_learning_rate(float rate) {
  check(rate >= 0 && std::isfinite(rate), "optimizer", "the learning rate must be >= 0, got {}",
        rate);
  rule_->learning_rate = rate;
}

void Optimizer::set_scaler(const LossScaler& scaler) {
  scaler.validate();
  check<AutogradError>(!has_scaled_, "optimizer",
                       "the scaler must be set before backward() or after step()");
  control_->set_scaler(scaler);
}

const LossScaler& Optimizer::scaler() const {
  return control_->scaler();
}

void Optimizer::set_schedule(const Schedule& schedule) {
  control_->schedule = schedule;
}

const Tensor& Optimizer::control() const {
  return control_->buffer();
}

float Optimizer::base_learning_rate() const {
  return rule_->learning_rate;
}

void Optimizer::set_max_norm(float max_norm) {
  check(max_norm >= 0 && std::isfinite(max_norm), "optimizer",
        "max_norm must be positive, or 0 for no clipping, got {}", max_norm);
  control_->max_norm = max_norm;
}

void Optimizer::backward(const Tensor& loss, float weight) {
  loss.backward(control_->seed(loss, weight));
  has_scaled_ = true;
}

bool Optimizer::step() {
  return update(1);
}

void Optimizer::zero_grad() {
  parameters_->drop_gradients();
}

bool Optimizer::update(float weight, uint32_t part) {
  static_assert(PREPARE_ALL == 0);
  const OpScope scope("optimizer");
  const PhaseScope phase(Phase::update);
  check<AutogradError>(has_scaled_ || (!scaler().is_dynamic && scaler().initial == 1), "optimizer",
                       "with a loss scaler, step() needs optimizer.backward(loss), not "
                       "loss.backward(): the gradients must carry the loss scale");
  has_scaled_ = false;
  const bool by_runs = parameters_->has_streamed_gradients();
  const bool has_gradients = by_runs ? measure_by_runs() : gradients_->locate();
  if (!has_gradients && !parameters_->shard()) return false;
  check_update();
  announce_update();
  parameters_->follow_parameters();
  if (!has_gradients) gradients_->clear_stats();
  if (!by_runs) share_stats(gradients_->stats());
  control_->prepare(part, weight, gradients_->all_stats());
  // With a Shard, only the statistics know of gradients that other ranks have.
  if (parameters_->shard() || !gradients_->has_all())
    control_->count_missed(gradients_->all_stats());
  StateStaging(*parameters_, *gradients_).update([&](size_t run, RunValues values) {
    if (by_runs) gradients_->locate(run);
    rule_->update(target(run, std::move(values)));
  });
  share_parameters();
  finish_update();
  return true;
}

// Takes the statistics of gradients that are not on the device together: there, one by one, or
// where they are, if the host updates them. Each parameter is a run then.
bool Optimizer::measure_by_runs() {
  bool has_any = false;
  std::vector<size_t> on_host;
  gradients_->clear_stats();
  for (size_t run = 0; run < parameters_->runs().size(); ++run) {
    if (parameters_->runs()[run].is_on_host && parameters_->send_away(run)) {
      const HostWorkScope scope;
      gradients_->locate(run);
      on_host.push_back(run);
    } else if (gradients_->locate(run)) {
      gradients_->stats(run);
      has_any = true;
    }
  }
  if (on_host.empty()) return has_any;
  device().mark()();
  const HostWorkScope scope;
  for (const size_t run : on_host) gradients_->stats(run);
  return true;
}

void Optimizer::share_stats(const Tensor&) {
  check<AutogradError>(!parameters_->shard(), "optimizer",
                       "states that ranks keep in parts need Accumulate and DataParallel");
}

void Optimizer::check_update() {
  tell_observers(&UpdateObserver::check_update);
}

void Optimizer::announce_update() {
  tell_observers(&UpdateObserver::before_update);
}

UpdateTarget Optimizer::target(size_t i) const {
  return target(i, parameters_->values(i));
}

UpdateTarget Optimizer::target(size_t i, RunValues values) const {
  const FlatParameters::Run& run = parameters_->runs()[i];
  const ParameterGroup& group = parameters_->groups()[run.group];
  return {.parameters = std::move(values.parameters),
          .states = std::move(values.states),
          .control = control(),
          .table = gradients_->table(),
          .shift = gradients_->shift(),
          .learning_rate = rule_->learning_rate * group.lr_scale,
          .weight_decay = group.weight_decay.value_or(rule_->weight_decay),
          .run = i,
          .group = run.group,
          .gradients = *gradients_,
          .all = *parameters_,
          .slots = std::span(parameters_->slots()).subspan(run.first_slot, run.slots)};
}

void Optimizer::update_run(size_t run) {
  if (!parameters_->runs()[run].is_on_host) return rule_->update(target(run));
  StateStaging(*parameters_, *gradients_).update_one(run, [&](size_t, RunValues values) {
    rule_->update(target(run, std::move(values)));
  });
}

void Optimizer::finish_update() {
  tell_observers(&UpdateObserver::after_update);
  parameters_->publish();
  parameters_->end_window();
  device().end_step_soon();
  apply_environment_after_update(device());
}

void Optimizer::tell_observers(void (UpdateObserver::*message)()) {
  for (const std::weak_ptr<UpdateObserver>& observer : observers_)
    if (const auto alive = observer.lock()) ((*alive).*message)();
}

void Optimizer::add_observer(std::weak_ptr<UpdateObserver> observer) {
  std::erase_if(observers_, [](const auto& o) { return o.expired(); });
  observers_.push_back(std::move(observer));
}

uint64_t Optimizer::updates() const {
  return control_->count(STATE_UPDATES);
}
uint64_t Optimizer::skipped() const {
  return control_->count(STATE_SKIPPED);
}
Tensor Optimizer::copy_updates(const char* average) const {
  constexpr uint64_t most = uint64_t{1} << 24;
  check(updates() < most, average, "an average must begin within the first {} updates, got {}",
        most, updates());
  return copy_of(make_view(control(), {1}, {1}, STATE_UPDATES), DType::f32);
}

float Optimizer::loss_scale() const {
  return control_->read(STATE_SCALE);
}
float Optimizer::grad_norm() const {
  return control_->read(STATE_GRAD_NORM);
}

double Optimizer::learning_rate() const {
  const uint64_t done = updates();
  return rule_->learning_rate * control_->schedule.factor(done > 0 ? done - 1 : 0);
}

UpdateCounts Optimizer::counts() const {
  return control_->counts();
}

std::string Optimizer::diagnose() const {
  return rw::diagnose(scaler(), counts());
}

namespace {

// The name of a part of a divided parameter's state says which elements it has.
std::string name_of(const std::string& kind, const FlatParameters::Slot& slot, const Tensor& tensor,
                    int64_t first) {
  const std::string whole = kind + "." + slot.name;
  return slot.is_divided() ? part_name(whole, {first, tensor.numel()}) : whole;
}

const std::string master_kind = "master", control_kind = "control",
                  high_name = control_kind + ".high", missed_kind = control_kind + ".missed";

}  // namespace

Optimizer::NamedState Optimizer::state() const {
  const std::vector<float> digits = control().to_vector();
  return state([&](const std::string&, const Tensor& part) {
    const auto first = digits.begin() + part.impl().offset - control().impl().offset;
    return std::any_of(first, first + part.numel(), [](float digit) { return digit != 0; });
  });
}

// The parts of the control buffer that most runs never need are there if they are wanted.
Optimizer::NamedState Optimizer::state(
    const std::function<bool(const std::string&, const Tensor&)>& is_wanted) const {
  NamedState all = {{control_kind, control_->values()}};
  const auto add = [&](const std::string& name, const Tensor& part) {
    if (is_wanted(name, part)) all.emplace_back(name, part);
  };
  add(high_name, control_->high_digits());
  for (size_t i = 0; i < parameters_->slots().size(); ++i)
    if (gradients_->first_chunk(i) < gradients_->end_chunk(i))
      add(missed_kind + "." + parameters_->slots()[i].name,
          make_view(control(), {2}, {1}, STATE_MISSED(int64_t{gradients_->first_chunk(i)})));
  const std::vector<std::string> names = rule_->state_names();
  for (const FlatParameters::Slot& slot : parameters_->slots()) {
    if (slot.parameter.dtype() != DType::f32)
      if (const Tensor master = parameters_->master(slot)) {
        const bool is_whole = master.numel() == slot.parameter.numel();
        all.emplace_back(is_whole ? master_kind + "." + slot.name
                                  : name_of(master_kind, slot, master, slot.own.offset),
                         master);
      }
    for (size_t i = 0; i < names.size(); ++i)
      if (const Tensor state = parameters_->state(slot, i))
        all.emplace_back(name_of(names[i], slot, state, slot.states[i]->first), state);
  }
  return all;
}

Optimizer::NamedState Optimizer::own_state() const {
  NamedState all = state();
  const std::optional<Shard>& shard = parameters_->shard();
  if (!shard) return all;
  std::erase_if(all, [&](const auto& one) {
    return one.first.starts_with(master_kind + ".") ||
           (shard->rank != 0 && (one.first == control_kind || one.first == high_name ||
                                 one.first.starts_with(missed_kind + ".")));
  });
  for (const FlatParameters::Slot& slot : parameters_->slots())
    if (slot.parameter.dtype() != DType::f32)
      if (const Tensor master = parameters_->own_master(slot))
        all.emplace_back(name_of(master_kind, slot, master, slot.own.offset), master);
  return all;
}

std::vector<std::string> Optimizer::states_elsewhere() const {
  std::vector<std::string> names;
  for (const FlatParameters::Slot& slot : parameters_->slots()) {
    if (slot.part) continue;
    for (const std::string& state : rule_->state_names()) names.push_back(state + "." + slot.name);
    if (!parameters_->master(slot)) names.push_back(master_kind + "." + slot.name);
  }
  return names;
}

void Optimizer::load_state(const NamedState& saved) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : saved) names.push_back(name);
  copy_state(saved, state_to_fill(names));
  state_filled();
  parameters_->publish();
}

Optimizer::NamedState Optimizer::state_to_fill(const std::vector<std::string>& names) {
  saved_names_ = names;
  return state([&](const std::string& name, const Tensor&) {
    return std::ranges::find(names, name) != names.end();
  });
}

// Counts that an older state does not have are 0, and so are missed updates that a state does not
// name; all chunks of a parameter have its count.
void Optimizer::state_filled() {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(saved_names_, name) != saved_names_.end();
  };
  if (!has(high_name)) fill_(control_->high_digits(), 0);
  Tensor missed = control_->missed();
  std::vector<float> digits = missed.to_vector();
  for (size_t i = 0; i < parameters_->slots().size(); ++i) {
    const bool is_there = has(missed_kind + "." + parameters_->slots()[i].name);
    const size_t first = gradients_->first_chunk(i), end = gradients_->end_chunk(i);
    for (size_t at = 2 * first; at < 2 * end; ++at)
      digits[at] = is_there ? digits[2 * first + at % 2] : 0;
  }
  if (!digits.empty()) missed.copy_from(std::span<const float>(digits));
  saved_names_.clear();
}

void Optimizer::copy_state(const NamedState& saved, const NamedState& target) {
  SavedParts parts;
  for (const auto& [name, tensor] : saved) parts.add(name, tensor.numel());
  std::vector<std::vector<SavedParts::Piece>> pieces;
  for (const auto& [name, tensor] : target) {
    const auto same = std::ranges::find(saved, name, &NamedState::value_type::first);
    check<FileError>(same == saved.end() || same->second.shape() == tensor.shape(), "optimizer",
                     "'{}' must have the shape {}, got {}", name, tensor.shape(),
                     same == saved.end() ? Shape() : same->second.shape());
    const auto found = parts.pieces(name, tensor.numel());
    check<FileError>(found.has_value(), "optimizer", "the saved state has no '{}'", name);
    pieces.push_back(*found);
  }
  for (size_t i = 0; i < target.size(); ++i)
    for (const SavedParts::Piece& piece : pieces[i]) {
      const auto elements = [&](const Tensor& t, int64_t first) {
        return make_view(t, {piece.size}, {1}, t.impl().offset + first);
      };
      elements(target[i].second, piece.to)
          .copy_(elements(contiguous(saved[piece.saved].second), piece.from));
    }
}

float grad_norm(const std::vector<Tensor>& parameters) {
  std::vector<GradientTable::Entry> entries;
  for (const Tensor& p : parameters) entries.push_back({p});
  if (entries.empty()) return 0;
  GradientTable table(std::move(entries));
  if (!table.locate()) return 0;
  const std::vector<float> partials = table.stats().to_vector();
  double squares = 0;
  for (size_t row = 0; row < table.rows(); ++row)
    if (const double scale = partials[2 * table.rows() + row]; scale > 0)
      squares += partials[row] / (scale * scale);
  return static_cast<float>(std::sqrt(squares));
}

}  // namespace rw
