#include "trainer/loop/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "core/base/interrupt.h"
#include "ops/numerics/overflow.h"
#include "trainer/loop/model_steps.h"
#include "trainer/program/program.h"

namespace rw {

namespace {

// Writes "--weight-decay" as "weight_decay", and numbers as numbers.
nlohmann::json figures(const Settings& settings) {
  nlohmann::json json;
  for (const auto& [name, value] : settings) {
    std::string key = name.starts_with("--") ? name.substr(2) : name;
    std::ranges::replace_if(
        key, [](char c) { return c == '-' || c == ' '; }, '_');
    const auto parsed = nlohmann::json::parse(value, nullptr, false);
    json[key] = parsed.is_primitive() && !parsed.is_discarded() ? parsed : nlohmann::json(value);
  }
  return json;
}

constexpr double enough_targets = 200;  // for a mean loss that says something

}  // namespace

TrainingLoop::TrainingLoop(LoopOptions options, Module& model, Optimizer& optimizer, Meter& meter,
                           PlannedRun& planned, const NumericsWatch* numerics,
                           ParameterAverage* average)
    : options_(std::move(options)),
      model_(model),
      optimizer_(optimizer),
      meter_(meter),
      planned_(planned),
      numerics_(numerics),
      average_(average) {
  const DeviceInfo& device = default_device()->info();
  options_.settings["the device"] = fmt::format("{} ({})", device.name, device.driver);
  // JSON must be UTF-8, and names of files may be something else.
  using Json = nlohmann::json;
  options_.settings =
      Json::parse(Json(options_.settings).dump(-1, ' ', false, Json::error_handler_t::replace));
  constexpr int keep = 2;
  if (!options_.snapshots.empty())
    snapshots_.emplace(options_.snapshots, keep,
                       SnapshotRanks{world().rank(), rank_count(), [](const std::string& own) {
                                       return gather_texts(world(), own);
                                     }});
}

TrainingState TrainingLoop::state() {
  TrainingState state{.model = model_,
                      .optimizer = optimizer_,
                      .change_dtype = options_.change_dtype,
                      .base = options_.base};
  if (average_)
    for (const auto& [name, tensor] : average_->state()) state.extra.push_back({name, tensor});
  return state;
}

void TrainingLoop::resume() {
  check_steps_of_ranks(optimizer_, options_.steps);
  check_ranks_alike(options_.settings);
  if (!snapshots_) return;
  if (options_.restart) snapshots_->clear();
  const auto whole = gather_parameters(options_.parallel);
  const std::optional<LoadedSnapshot> loaded = snapshots_->load_latest(
      state(), [this](const TrainingPosition& position) { check_resumed(position); });
  if (!loaded) return;
  start_ = loaded->position.step;
  check<FileError>(start_ % rank_count() == 0, "resume",
                   "{} ranks can share the steps only after a step that their number divides, got "
                   "step {}; let one process finish the window",
                   rank_count(), start_);
  if (changes_scaler_) optimizer_.restart_scaler();  // the saved scaler belongs to another dtype
  for (const std::string& damaged : loaded->damaged)
    warn(fmt::format("skipping a damaged snapshot: {}", damaged));
  if (!loaded->damaged.empty())
    warn(fmt::format("resuming from the older '{}'", loaded->file.string()));
  if (!options_.quiet) fmt::print("resuming after step {} of '{}'\n", start_, options_.snapshots);
}

// Throws FileError unless the position lies in this very run.
void TrainingLoop::check_resumed(const TrainingPosition& position) {
  const std::string& folder = options_.snapshots;
  const auto saved = nlohmann::json::parse(position.json, nullptr, false);
  const bool is_whole = saved.is_object() && saved.contains("settings") &&
                        saved["settings"].is_object() && saved.contains("history") &&
                        saved["history"].is_array();
  check<FileError>(is_whole, "resume", "'{}' is not of this program: {:?}", folder, position.json);
  Settings then;
  for (const auto& [name, value] : saved["settings"].items())
    then[name] = value.is_string() ? value.get<std::string>() : value.dump();
  rw::check_resumed(folder, then, options_.settings, options_.change_dtype);
  check<FileError>(
      position.step <= options_.steps && position.epoch == position.step / options_.batches &&
          position.index == position.step % options_.batches,
      "resume",
      "'{}' must be in {} steps, {} per epoch, got step {}, epoch {}, batch {}; is the "
      "data the same? Use another folder, or --restart",
      folder, options_.steps, options_.batches, position.step, position.epoch, position.index);
  history_ = saved["history"];
  if (saved.contains("start_loss")) start_loss_ = saved["start_loss"].get<double>();
  evaluations_ = saved.value("evaluations", nlohmann::json::array());
  changes_scaler_ = saved.value("scaler", nlohmann::json()) != loss_scale_text(optimizer_.scaler());
}

void TrainingLoop::write_snapshot(int64_t done) {
  if (!snapshots_) return;
  const auto whole = gather_parameters(options_.parallel);
  nlohmann::json saved = {{"settings", options_.settings},
                          {"scaler", loss_scale_text(optimizer_.scaler())},
                          {"history", history_}};
  if (!evaluations_.empty()) saved["evaluations"] = evaluations_;
  if (start_loss_) saved["start_loss"] = *start_loss_;
  snapshots_->save(state(), {.step = done,
                             .epoch = done / options_.batches,
                             .index = done % options_.batches,
                             .json = saved.dump()});
}

void TrainingLoop::evaluate_epoch(int64_t done, const std::function<nlohmann::json()>& evaluate,
                                  Progress& progress) {
  progress.finish();
  const double before = progress.seconds();
  nlohmann::json found = evaluate();
  found.update({{"step", done}, {"epoch", done / options_.batches}});
  evaluations_.push_back(std::move(found));
  model_.train();
  evaluation_seconds_ += progress.seconds() - before;
}

double TrainingLoop::trained_seconds(const Progress& progress) const {
  return progress.seconds() - evaluation_seconds_;
}

void TrainingLoop::run(const std::function<int64_t(int64_t)>& step,
                       const std::function<nlohmann::json()>& evaluate) {
  model_.train();
  const InterruptScope interrupts;
  Progress progress(options_.steps, options_.quiet, options_.points);
  int64_t saved = start_;
  compared_ = start_;
  const int64_t ranks = rank_count();
  for (int64_t i = start_; i < options_.steps; i += ranks) {
    const int64_t own = i + world().rank(), done = std::min(i + ranks, options_.steps);
    planned_.before_step(i / ranks, options_.steps / ranks);
    default_generator().begin_stream(static_cast<uint64_t>(own));
    if (own < options_.steps)
      trained_ += step(own);
    else
      options_.parallel->skip();
    if (!start_loss_) begin_loss(meter_.peek(), done);
    if (progress.due(done, done - i)) show(done, progress);
    const bool ends_epoch = done / options_.batches > i / options_.batches && done < options_.steps;
    if (ends_epoch && average_ && evaluate) evaluate_epoch(done, evaluate, progress);
    const bool is_between = optimizer_.position() == 0;
    const bool stops = signal_of_ranks() != 0 && (ranks == 1 || is_between);
    // A snapshot waits for the end of an update if it can, since the gradients of a window make it
    // larger.
    const bool is_due = done - saved >= options_.steps_per_snapshot;
    if (!options_.snapshots.empty() && (stops || (is_due && is_between))) {
      write_snapshot(done);
      saved = done;
    }
    if (stops) stop(done);
  }
  planned_.after_steps();
  finish_window(optimizer_);
  seconds_ = trained_seconds(progress);
  rate_ = rate(seconds_);
  if (numerics_) numerics_->print();
  if (signal_of_ranks() == 0) return conclude_training(optimizer_, options_.quiet);
  write_snapshot(options_.steps);
  stop(options_.steps);
}

void TrainingLoop::stop(int64_t done) const {
  const int signal = signal_of_ranks();
  throw Interrupted(signal, fmt::format("{} after step {} of {}; {}",
                                        signal == SIGINT   ? "interrupted"
                                        : signal == SIGHUP ? "the terminal is gone"
                                                           : "terminated",
                                        done, options_.steps,
                                        !options_.snapshots.empty()
                                            ? fmt::format("--resume '{}' continues from there",
                                                          options_.snapshots)
                                            : "nothing is kept without --resume"));
}

void TrainingLoop::show(int64_t done, Progress& progress) {
  const Meter::Values values = meter_.read();
  check_finite(values.loss, done);
  check_rise(values, done);
  const MemoryReport memory = default_device()->memory_report();
  const uint64_t budget = planned_.settings().budget;
  StepFigures figures = {.loss = values.loss,
                         .rate = rate(trained_seconds(progress)),
                         .unit = options_.unit,
                         .now = memory.live,
                         .peak = memory.peak,
                         .most = budget ? budget : memory.limit};
  if (options_.has_accuracy) figures.accuracy = values.accuracy;
  progress.show(done, figures);
  history_.push_back({{"step", done},
                      {"loss", values.loss},
                      {"learning_rate", optimizer_.learning_rate()},
                      {"seconds", trained_seconds(progress)}});
  if (options_.has_accuracy) history_.back()["accuracy"] = values.accuracy;
}

void TrainingLoop::check_finite(double loss, int64_t done) const {
  if (std::isfinite(loss)) return;
  const std::string advice = overflow_advice(planned_.settings().dtype);
  fail<NumericsError>("train", "the loss must be finite, got {} at step {}{}; {} ({})", loss, done,
                      options_.find_overflow ? options_.find_overflow() : "",
                      advice.empty() ? "lower --lr" : advice + ", or lower --lr",
                      numerics_ ? numerics_->diagnose() : optimizer_.diagnose());
}

namespace {

void add_loss(const Meter::Values& values, Meter::Values& sum) {
  sum.loss += values.loss * values.count;
  sum.count += values.count;
}

}  // namespace

// The first steps, whose values show() may have taken, give the loss to compare with.
void TrainingLoop::begin_loss(const Meter::Values& values, int64_t done) {
  check_finite(values.loss, done);
  Meter::Values sum = first_;
  add_loss(values, sum);
  if (sum.count >= enough_targets) start_loss_ = sum.loss / sum.count;
}

// Batches differ, so it takes means over many targets and a twentieth of the run, two in succession
// or the last one; and a small loss may rise by a quarter.
void TrainingLoop::check_rise(const Meter::Values& values, int64_t done) {
  if (!start_loss_) return add_loss(values, first_);
  add_loss(values, recent_);
  const bool is_last = done == options_.steps;
  if (recent_.count < enough_targets || ((done - compared_) * 20 < options_.steps && !is_last))
    return;
  const Meter::Values sum = std::exchange(recent_, {});
  const double mean = sum.loss / sum.count, start = *start_loss_;
  compared_ = done;
  rises_ = mean > start + 0.5 * std::max(start, 0.5) ? rises_ + 1 : 0;
  check<NumericsError>(
      options_.allow_rise || rises_ < (is_last ? 1 : 2), "train",
      "the loss must not exceed its initial value of {:.3f} by half, got {:.3f} at step "
      "{} of {}: the learning rate is too high, or the data are of another kind. Nothing is "
      "saved, and an earlier model is kept. Lower --lr from {:g}, or continue with "
      "--allow-rise",
      start, mean, done, options_.steps, optimizer_.base_learning_rate());
}

double TrainingLoop::rate(double seconds) const {
  const double trained = sum_over(world(), static_cast<double>(trained_));
  return trained == 0 ? 0 : trained * static_cast<double>(options_.per_sample) / seconds;
}

std::string TrainingLoop::summary(const RunAccount& account) const {
  const double loss = history_.empty() ? 0 : history_.back()["loss"].get<double>();
  std::string text = fmt::format("Trained  {} steps in {:.1f} s, {:.0f} {}/s, loss {:.3f}\n",
                                 options_.steps - start_, seconds_, rate(), options_.unit, loss);
  const uint64_t peak = account.memory.peak;
  text += fmt::format("Memory   {} at the peak", format_bytes(peak));
  if (account.budget) text += fmt::format(", of a budget of {}", format_bytes(account.budget));
  if (!account.savings.empty() && account.savings[0].peak > peak)
    text += fmt::format("; {} without these savings ({:.1f} times)",
                        format_bytes(account.savings[0].peak),
                        static_cast<double>(account.savings[0].peak) / static_cast<double>(peak));
  return text + "\n";
}

nlohmann::json TrainingLoop::json() const {
  nlohmann::json json = figures(options_.settings);
  json.update({{"steps", options_.steps},
               {"scaler", loss_scale_text(optimizer_.scaler())},
               {"updates", optimizer_.updates()},
               {"skipped_updates", optimizer_.skipped()},
               {"loss_scale", optimizer_.loss_scale()},
               {"train_seconds", seconds_},
               {"step_seconds",
                seconds_ / static_cast<double>(std::max<int64_t>(1, options_.steps - start_))},
               {"history", history_}});
  if (!evaluations_.empty()) json["evaluations"] = evaluations_;
  return json;
}

}  // namespace rw
