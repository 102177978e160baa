#include "apps/asr/corpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/base/files.h"
#include "data/speech/spoken_digits.h"
#include "trainer/loop/batch_shapes.h"

namespace rw {

namespace {

std::filesystem::path folder_of(const AsrOptions& o) {
  if (!o.data.empty()) return o.data;
  const auto tell = [&](const std::filesystem::path& folder) {
    if (o.quiet) return;
    fmt::print("espeak-ng speaks {} strings of digits, once, into '{}'\n", o.strings,
               folder.string());
    std::fflush(stdout);
  };
  const auto strings = static_cast<int>(o.strings);
  return spoken_digits(synthetic_data_directory(),
                       {.train = strings, .test = std::clamp(strings / 10, 1, 200)}, tell);
}

// The settings with which the file was made count, not the options.
SpeechUnits take_from_file(AsrOptions& o) {
  const StoredRecognizer stored = read_recognizer(SafetensorsFile(o.load));
  o.loss = stored.config.loss == SpeechLoss::ctc ? "ctc" : "rnnt";
  o.tokens = stored.has_words ? "word" : "character";
  o.hidden = stored.config.hidden, o.layers = stored.config.layers;
  o.channels = stored.config.channels;
  return {stored.has_words ? SpeechUnit::word : SpeechUnit::character, stored.units};
}

SpeechUnits units_of(const AsrOptions& o, const SpeechDataset& train, const SpeechDataset& test) {
  std::vector<std::string> texts = train.texts();
  std::ranges::copy(test.texts(), std::back_inserter(texts));
  return SpeechUnits::of(o.tokens == "word" ? SpeechUnit::word : SpeechUnit::character, texts);
}

}  // namespace

SpeechCorpus::SpeechCorpus(AsrOptions& options) : options_(options) {
  if (!options.load.empty()) units = take_from_file(options);
  const std::filesystem::path folder = folder_of(options);
  train = list_speech(folder, Split::train, options.test_share);
  test = list_speech(folder, Split::test, options.test_share);
  if (!units) units = units_of(options, train, test);
}

int64_t SpeechCorpus::batch() const {
  return std::min(options_.batch, static_cast<int64_t>(train.size()));
}

SpeechLoader SpeechCorpus::training(int64_t batch) const {
  return {train, *units, options_.loader(options_.model(units->classes()), batch, true)};
}

SpeechLoader SpeechCorpus::testing(int64_t batch) const {
  return {test, *units, options_.loader(options_.model(units->classes()), batch, false)};
}

int64_t SpeechCorpus::steps_of(const SpeechLoader& loader) const {
  return options_.steps ? options_.steps : options_.epochs * loader.batches();
}

SpeechRecipe SpeechCorpus::recipe() const {
  SpeechLoader loader = training(batch());
  int64_t longest = 0;
  for (const BatchShape& shape : largest_shapes(loader, steps_of(loader)))
    longest = std::max(longest, shape.length);
  return options_.recipe(units->classes(), longest, loader.width());
}

TrainingProgram SpeechCorpus::program() const {
  TrainingProgram program = options_.program(recipe());
  program.settings.batch = batch();
  program.trains = !options_.eval;
  program.steps = remembered([this](int64_t size) {
    SpeechLoader loader = training(std::min(size, static_cast<int64_t>(train.size())));
    const int64_t total = steps_of(loader);
    return largest_shapes(std::move(loader), total);
  });
  program.evaluation =
      remembered([this](int64_t size) { return largest_shapes(testing(size), 0); });
  return program;
}

}  // namespace rw
