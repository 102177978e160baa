#include "trainer/trainer_options.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "trainer/program/lasting_output.h"
#include "trainer/program/shared_options.h"

namespace rw {

void TrainerOptions::add_common_to(CLI::App& app) {
  command = &app;
  CLI::Option* const size =
      must_be_positive(shared_option(app, "--batch", batch, samples + batch_note));
  if (batch_note.empty()) size->capture_default_str();
  app.add_option("--accumulate", accumulate, "steps per update of the weights")
      ->capture_default_str();
  shared_option(app, "--seed", seed, random)->capture_default_str();
  CLI::Option* const silent = app.add_flag("--quiet", quiet, "print the results only");
  app.add_flag_callback(
         "--json-lines",
         [] {
           if (is_first_rank()) begin_json_lines();
         },
         "print lines of JSON for other programs: one for each step that is shown, "
         "and the report; text for people goes to standard error")
      ->excludes(silent);
  add_recomputation_to(app);
  std::vector<std::string> places = offloading_words();
  if (!has_frozen_file) std::erase(places, "file");
  app.add_option(
         "--offload", offload,
         fmt::format(
             "what lies in host memory: none, the optimizer's states, or parameters, too, "
             "which come to the device when they are needed; either with +updates, which the "
             "host's "
             "processor makes then{}",
             has_frozen_file ? "; file: weights that nothing trains stay in their file" : ""))
      ->check(CLI::IsMember(places))
      ->capture_default_str();
  app.add_option("--fused-update", fused_update,
                 "update each weight inside backward, so that no gradients are kept: in 1 pass, "
                 "clipped by the norm of the previous update, or in 2 passes, clipped exactly; "
                 "needs --accumulate 1")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  device.add_to(app);
  planning.add_to(app);
  numerics.add_to(app);
  average.add_to(app);
  ranks.add_to(app);
}

void TrainerOptions::add_recomputation_to(CLI::App& app) {
  if (segments.empty()) return;
  std::vector<std::string> choices = {"none"};
  choices.insert(choices.end(), segments.begin(), segments.end());
  app.add_option(
         "--checkpoint", checkpoint,
         fmt::format("recompute activations, in segments of: {}", fmt::join(choices, " or ")))
      ->check(CLI::IsMember(choices))
      ->capture_default_str();
  if (!joins_segments) return;
  shared_option(app, "--checkpoint-every", checkpoint_every)->capture_default_str();
  app.add_flag("--host-boundaries", host_boundaries,
               "keep the values between segments in host memory");
  if (!divides_mlps) return;
  app.add_option("--mlp-rows", mlp_rows,
                 "the number of tokens that each MLP takes at a time, which bounds what it has in "
                 "memory; 0: all")
      ->capture_default_str();
}

void TrainerOptions::add_to(CLI::App& app) {
  lr.add_to(app);
  app.add_option("--weight-decay", weight_decay, "the weight decay of " + decayed)
      ->capture_default_str();
  app.add_option("--resume", resume,
                 "keep training snapshots in this folder, and resume from the newest, if any");
  app.add_flag("--restart", restart, "remove the snapshots in that folder and start from zero")
      ->needs("--resume");
  app.add_flag("--change-dtype", change_dtype, "resume from a snapshot of another --dtype")
      ->needs("--resume");
  app.add_option("--snapshot-every", snapshot_every, "the number of steps between snapshots")
      ->capture_default_str();
  app.add_flag(
      "--allow-rise", allow_rise,
      "continue even if the loss exceeds its initial value by half, which otherwise ends a run");
  add_common_to(app);
}

void TrainerOptions::check_numbers() const {
  numerics.scaler(device.parsed_dtype());
  average.check_numbers();
  // Products of these stay far from the largest number.
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto check_range = [&](const char* name, int64_t value, int64_t least) {
    check(value >= least && value <= most, "options", "{} must be in [{}, {}], got {}", name, least,
          most, value);
  };
  check_range("--batch", batch, 1);
  check_range("--accumulate", accumulate, 1);
  check_range("--steps", steps, 0);
  check_range("--epochs", epochs, steps > 0 ? 0 : 1);
  check_range("--checkpoint-every", checkpoint_every, 1);
  check_range("--mlp-rows", mlp_rows, 0);
  check_range("--snapshot-every", snapshot_every, 1);
  rate();  // throws if the options make no sense
}

StepSettings TrainerOptions::settings() const {
  return ranks.of_rank({.dtype = device.parsed_dtype(),
                        .batch = batch,
                        .accumulate = accumulate,
                        .checkpoint = checkpoint,
                        .checkpoint_every = checkpoint_every,
                        .host_boundaries = host_boundaries,
                        .mlp_rows = mlp_rows,
                        .offload = offload,
                        .fused_update = fused_update});
}

void TrainerOptions::fit_memory(TrainingProgram& program) {
  const std::optional<Choice> choice = chosen_by_memory(program, planning);
  if (!choice) return;
  // A step is a part of what it was, so that updates see the same samples.
  const int64_t parts = std::max<int64_t>(1, choice->settings.accumulate / accumulate);
  steps *= parts;
  snapshot_every *= parts;
  program.settings = choice->settings;
  predicted_seconds = choice->seconds;
  batch = program.settings.batch;
  accumulate = program.settings.accumulate;
  checkpoint = program.settings.checkpoint;
  checkpoint_every = program.settings.checkpoint_every;
  host_boundaries = program.settings.host_boundaries;
  mlp_rows = program.settings.mlp_rows;
  offload = program.settings.offload;
  fused_update = program.settings.fused_update;
}

}  // namespace rw
