#include "apps/asr/training.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>

#include "data/base/prefetch.h"
#include "data/content_hash.h"
#include "io/models/model.h"

namespace rw {

AsrTraining::AsrTraining(const AsrOptions& options, const SpeechCorpus& corpus, ProgramRun& run)
    : options_(options),
      corpus_(corpus),
      batch_(run.settings().batch),
      steps_(corpus.recipe(), run.settings()),
      loader_(corpus.training(batch_)),
      total_(corpus.steps_of(loader_)),
      loop_(loop_options(), steps_.model, steps_.optimizer, steps_.meter, run, &steps_.numerics) {
  const auto updates =
      static_cast<uint32_t>((total_ + options.accumulate - 1) / options.accumulate);
  steps_.optimizer.set_schedule(Schedule::cosine(updates, updates / 10));
  constexpr int64_t known = 8;  // batches that tell what features are like
  if (options.load.empty()) {
    steps_.fit_features(loader_, known);
  } else {
    const WholeParameters whole(steps_.parallel.get());
    load_model(options.load, steps_.model);
  }
}

LoopOptions AsrTraining::loop_options() const {
  return {.steps = total_,
          .batches = loader_.batches(),
          .samples = options_.batch,
          .unit = "utterances",
          .has_accuracy = false,
          .quiet = options_.quiet,
          .snapshots = options_.resume,
          .steps_per_snapshot = options_.snapshot_every,
          .parallel = steps_.parallel.get(),
          .restart = options_.restart,
          .settings = options_.eval ? Settings() : settings()};
}

Settings AsrTraining::settings() const {
  return run_settings(*options_.command, options_.lr.rate(options_.batch, options_.accumulate),
                      {content_hash(corpus_.train), content_hash(corpus_.test)});
}

void AsrTraining::introduce() const {
  if (options_.quiet) return;
  fmt::print(
      "{} recogniser of {} {}s ({} parameters) in {} on {}{}: {} steps of {} utterances{}, of {} "
      "({:.0f} minutes) of {} voices\n",
      options_.loss, corpus_.units->classes() - 1, options_.tokens, steps_.model.parameter_count(),
      options_.device.dtype, default_device()->info().name, of_ranks(), total_, batch_,
      options_.lr.str(options_.batch, options_.accumulate), corpus_.train.size(),
      corpus_.train.seconds() / 60, corpus_.train.speakers().size());
}

void AsrTraining::run() {
  loop_.resume();
  introduce();
  RankStream<SpeechLoader> stream(loader_, loop_.start());
  loop_.run([&](int64_t) { steps_.step(stream.next()); });
}

void AsrTraining::save() const {
  const WholeParameters whole(steps_.parallel.get());
  if (!is_first_rank()) return;
  save_model(options_.save, steps_.model,
             to_metadata({.config = steps_.model.config(),
                          .has_words = corpus_.units->unit() == SpeechUnit::word,
                          .units = corpus_.units->names()}));
  default_device()->end_step();
  if (!options_.quiet) fmt::print("the recogniser is in '{}'\n", options_.save);
}

WordErrors AsrTraining::evaluate() {
  const WholeParameters whole(steps_.parallel.get());
  const NoGrad guard;
  steps_.model.eval();
  SpeechLoader loader = corpus_.testing(batch_);
  WordErrors errors;
  for (int64_t i = world().rank(); i < loader.batches(); i += rank_count()) {
    const SpeechBatch batch = loader.batch(0, i);
    const auto heard = steps_.recognise(batch, options_.beam);
    for (size_t row = 0; row < heard.size(); ++row)
      errors += word_errors(corpus_.units->decode(heard[row]),
                            corpus_.test.utterances[batch.utterances[row]].text);
  }
  const auto of_all = [](int64_t own) {
    const std::vector<int64_t> all = gather(world(), own);
    return std::accumulate(all.begin(), all.end(), int64_t{0});
  };
  return {of_all(errors.errors), of_all(errors.words)};
}

nlohmann::json AsrTraining::report() const {
  nlohmann::json report = loop_.json();
  report.update({{"parameters", steps_.model.parameter_count()},
                 {"utterances", corpus_.train.size()},
                 {"units", corpus_.units->names()},
                 {"train_voices", corpus_.train.speakers()},
                 {"test_voices", corpus_.test.speakers()},
                 {"train_seconds_of_sound", corpus_.train.seconds()},
                 {"test_utterances", corpus_.test.size()},
                 {"checkpoint", options_.checkpoint},
                 {"utterances_per_second", loop_.rate()},
                 {"device", device_json()}});
  return report;
}

}  // namespace rw
