#include "examples/common/training_loop.h"

#include <fmt/format.h>

#include <cmath>

namespace rw {

TrainingLoop::TrainingLoop(LoopOptions options, Module& model, Accumulate& optimizer, Meter& meter,
                           PlannedRun& planned)
    : options_(std::move(options)),
      model_(model),
      optimizer_(optimizer),
      meter_(meter),
      planned_(planned) {}

void TrainingLoop::resume() {
  if (options_.checkpoints.empty()) return;
  const auto position = CheckpointDirectory(options_.checkpoints).load_latest(state());
  if (!position) return;
  const auto saved = nlohmann::json::parse(position->json);
  check(saved.at("settings") == options_.settings, "resume", "'{}' is of another run: {}, not {}",
        options_.checkpoints, saved.at("settings").dump(), options_.settings.dump());
  start_ = position->step;
  history_ = saved.at("history");
  if (!options_.quiet) fmt::print("going on after step {} of '{}'\n", start_, options_.checkpoints);
}

void TrainingLoop::write_checkpoint(int64_t done) {
  const nlohmann::json saved = {{"settings", options_.settings}, {"history", history_}};
  CheckpointDirectory(options_.checkpoints)
      .save(state(), {.step = done,
                      .epoch = done / options_.batches,
                      .index = done % options_.batches,
                      .json = saved.dump()});
}

void TrainingLoop::run(const std::function<void(int64_t)>& step) {
  model_.train();
  Progress progress(options_.steps, options_.quiet);
  int64_t saved = start_;
  for (int64_t i = start_; i < options_.steps; ++i) {
    planned_.before_step(i, options_.steps);
    step(i);
    if (progress.due(i + 1)) show(i + 1, progress);
    // Between updates only: the gradients of a window are not part of a checkpoint.
    if (!options_.checkpoints.empty() && i + 1 - saved >= options_.steps_per_checkpoint &&
        optimizer_.position() == 0) {
      write_checkpoint(i + 1);
      saved = i + 1;
    }
  }
  optimizer_.flush();
  seconds_ = progress.seconds();
}

void TrainingLoop::show(int64_t done, Progress& progress) {
  const Meter::Values values = meter_.read();
  check<NumericsError>(
      std::isfinite(values.loss), "train",
      "the loss must be finite, got {} at step {}; lower --lr or use --dtype f32 ({})", values.loss,
      done, optimizer_.diagnose());
  const uint64_t memory = default_device()->memory_report().peak;
  progress.show(done, fmt::format("loss {:.3f}  accuracy {:.1f} %  {:.0f} {}/s  {}", values.loss,
                                  100 * values.accuracy, rate(done, progress.seconds()),
                                  options_.unit, format_bytes(memory)));
  history_.push_back({{"step", done},
                      {"loss", values.loss},
                      {"accuracy", values.accuracy},
                      {"seconds", progress.seconds()}});
}

double TrainingLoop::rate(int64_t done, double seconds) const {
  return static_cast<double>((done - start_) * options_.samples) / seconds;
}

double TrainingLoop::rate() const {
  return rate(options_.steps, seconds_);
}

nlohmann::json TrainingLoop::json() const {
  nlohmann::json json = options_.settings;
  json.update({{"updates", optimizer_.updates()},
               {"skipped_updates", optimizer_.skipped()},
               {"loss_scale", optimizer_.loss_scale()},
               {"train_seconds", seconds_},
               {"step_seconds", seconds_ / static_cast<double>(options_.steps - start_)},
               {"history", history_}});
  return json;
}

}  // namespace rw
