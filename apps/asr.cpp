// Trains a streaming speech recogniser on LibriSpeech's folders, or on digits that espeak-ng
// speaks, in f16 on Vulkan, and shows where the memory went; `recognise` says what is in files.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/asr/recognise.h"
#include "apps/asr/training.h"
#include "core/base/rng.h"

using namespace rw;

namespace {

void print_errors(const WordErrors& errors, const SpeechCorpus& corpus) {
  fmt::print("word error rate {:.2f} % of {} words, {} voices that were not trained with\n",
             100 * errors.rate(), errors.words, corpus.test.speakers().size());
}

void train(const AsrOptions& options, const SpeechCorpus& corpus, ProgramRun& run) {
  AsrTraining training(options, corpus, run);
  if (options.eval) return print_errors(training.evaluate(), corpus);
  training.run();
  training.save();
  const ReportFile file(options.report);
  nlohmann::json report = training.report();
  file.write_so_far(report);
  const WordErrors errors = training.evaluate();
  print_errors(errors, corpus);
  const RunAccount account = run.account();
  fmt::print("\n{}", account.str());
  report["word_error_rate"] = errors.rate();
  report["test_words"] = errors.words;
  report["device"] = account_json(account);
  file.write(report);
}

// What digits are like, where none are to be spoken.
TrainingProgram usual_program(const AsrOptions& options) {
  constexpr int64_t classes = 11, longest = 6;
  const LogMelOptions features;
  const auto frames =
      static_cast<int64_t>(options.seconds * static_cast<double>(features.rate)) / features.hop;
  return options.program(options.recipe(classes, frames, longest));
}

void run(AsrOptions& options) {
  options.complete();
  if (options.planning.plan && options.data.empty())
    return run_plan(usual_program(options), options.planning, options.device, options.report);
  if (!options.planning.plan) options.device.open();
  manual_seed(options.seed);
  const SpeechCorpus corpus(options);
  if (options.planning.plan)
    return run_plan(corpus.program(), options.planning, options.device, options.report);
  ProgramRun planned(corpus.program(), options.planning);
  planned.guard([&] { train(options, corpus, planned); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains a streaming speech recogniser on speech, or on digits that are synthesised.");
  AsrOptions options;
  options.add_to(app);
  Recognise recognise;
  CLI::App& ask = *app.add_subcommand("recognise", "what is said in sound files");
  recognise.add_to(ask);
  return run_program(app, argc, argv, [&] { ask ? recognise.run() : run(options); });
}
