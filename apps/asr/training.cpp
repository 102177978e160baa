#include "apps/asr/training.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <numeric>

#include "data/content_hash.h"
#include "io/models/model.h"
#include "nn/speech/ctc_decode.h"
#include "trainer/trainer.h"

namespace rw {

namespace {

class AsrTrainer : public Trainer<SpeechTask, SpeechLoader> {
 public:
  AsrTrainer(const AsrOptions& options, const SpeechCorpus& corpus, PlannedRun& run);

 protected:
  void load(SpeechSteps& steps) override;
  std::string title() const override;
  std::string steps_text() const override;
  std::unique_ptr<SpeechLoader> testing(int64_t batch) override;
  void save(bool is_average) override;
  void add_figures(nlohmann::json& report) const override;
  nlohmann::json evaluate(bool quiet) override;  // evaluates on the speakers held out

 private:
  WordErrors errors();  // with the weights as they are

  const AsrOptions& options_;
  const SpeechCorpus& corpus_;
};

}  // namespace

AsrTrainer::AsrTrainer(const AsrOptions& options, const SpeechCorpus& corpus, PlannedRun& run)
    : Trainer(options, run, corpus.recipe(),
              std::make_unique<SpeechLoader>(corpus.training(run.settings().batch)),
              options.eval ? Settings()
                           : run_settings(*options.command, options.rate(),
                                          {content_hash(corpus.train), content_hash(corpus.test)})),
      options_(options),
      corpus_(corpus) {}

void AsrTrainer::load(SpeechSteps& steps) {
  constexpr int64_t known = 8;  // batches for the statistics of the features
  if (options_.load.empty())
    steps.fit_features(training(), known);
  else
    load_model(options_.load, steps.model);
}

std::string AsrTrainer::title() const {
  return fmt::format("{} recogniser of {} {}s ({} parameters)", options_.loss,
                     corpus_.units->classes() - 1, options_.tokens,
                     steps().model.parameter_count());
}

std::string AsrTrainer::steps_text() const {
  return fmt::format("of {} utterances, of {} ({:.0f} minutes) of {} voices", batch(),
                     corpus_.train.size(), corpus_.train.seconds() / 60,
                     corpus_.train.speakers().size());
}

std::unique_ptr<SpeechLoader> AsrTrainer::testing(int64_t batch) {
  return std::make_unique<SpeechLoader>(corpus_.testing(batch));
}

void AsrTrainer::save(bool is_average) {
  save_model(weights_path(options_.save, is_average), steps().model,
             to_metadata({.config = steps().model.config(),
                          .has_words = corpus_.units->unit() == SpeechUnit::word,
                          .units = corpus_.units->names()}));
  if (!is_average && !options_.quiet) fmt::print("the recogniser is in '{}'\n", options_.save);
}

WordErrors AsrTrainer::errors() {
  const NoGrad guard;
  steps().model.eval();
  const std::unique_ptr<SpeechLoader> loader = testing(planned().settings().batch);
  WordErrors errors;
  for (int64_t i = world().rank(); i < loader->batches(); i += rank_count()) {
    const SpeechBatch batch = loader->batch(0, i);
    const auto heard = steps().recognise(batch, options_.beam);
    default_device()->end_step();
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

nlohmann::json AsrTrainer::evaluate(bool quiet) {
  const auto whole = gather_parameters(steps().parallel.get());
  const auto measured = [&](const char* whose) {
    const WordErrors found = errors();
    if (!quiet)
      fmt::print("word error rate {}{:.2f} % of {} words, {} voices that were not trained with\n",
                 whose, 100 * found.rate(), found.words, corpus_.test.speakers().size());
    return found;
  };
  const WordErrors found = measured("");
  nlohmann::json report = {{"word_error_rate", found.rate()}, {"test_words", found.words}};
  if (steps().average)
    at_average(*steps().average,
               [&] { report["ema_word_error_rate"] = measured("of the average ").rate(); });
  return report;
}

void AsrTrainer::add_figures(nlohmann::json& report) const {
  report.update({{"parameters", steps().model.parameter_count()},
                 {"utterances", corpus_.train.size()},
                 {"units", corpus_.units->names()},
                 {"train_voices", corpus_.train.speakers()},
                 {"test_voices", corpus_.test.speakers()},
                 {"train_seconds_of_sound", corpus_.train.seconds()},
                 {"test_utterances", corpus_.test.size()},
                 {"checkpoint", options_.checkpoint},
                 {"utterances_per_second", rate()}});
}

void run_training(AsrOptions& options, const SpeechCorpus& corpus) {
  TrainingProgram program = corpus.program();
  options.fit_memory(program);
  run_planned(std::move(program), options.planning, [&](PlannedRun& run) {
    AsrTrainer trainer(options, corpus, run);
    options.eval ? trainer.run_evaluation() : trainer.run();
  });
}

}  // namespace rw
