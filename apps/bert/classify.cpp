#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/bert/commands.h"
#include "data/text/sentences.h"
#include "data/text/table.h"
#include "data/text/text_loader.h"
#include "io/models/bert.h"
#include "ops/autocast.h"
#include "trainer/loop/batch_shapes.h"
#include "trainer/program/ranking.h"
#include "trainer/program/shared_options.h"

namespace rw {

namespace {

// The forward pass of a classifier, without training.
class ClassifySteps : public ModelSteps {
 public:
  ClassifySteps(const BertConfig& config, int64_t classes, const StepSettings& settings)
      : model(config, classes), settings_(settings) {}

  std::vector<float> scores(const TextBatch& batch) {  // [rows, classes]
    std::vector<float> scores;
    {
      const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
      scores = model.forward(device_input(batch)).to_vector();
    }
    default_device()->end_step();
    return scores;
  }

  void dry_evaluation(const BatchShape& shape) override {
    model.eval();
    scores({.rows = shape.rows_or(settings_.batch), .length = shape.length});
  }
  Module& trained() override { return model; }

  BertForSequenceClassification model;

 private:
  const StepSettings settings_;
};

// Prints the classes of texts by a classifier that Finetune made.
struct Classify {
  DeviceOptions device;
  std::vector<std::string> texts, pairs;  // pairs: the second texts
  std::string file, model;
  int64_t batch = 32, length = 0, top = 5;  // length 0: the model's longest

  void add_to(CLI::App& app);
  void run() const;

 private:
  SentenceDataset read_texts() const;
  TrainingProgram program(const BertConfig& config, int64_t classes) const;
};

}  // namespace

void Classify::add_to(CLI::App& app) {
  app.add_option("texts", texts, "texts to classify");
  app.add_option("--text-pair", pairs, "the second text of each, for a classifier of pairs");
  app.add_option("--file", file,
                 "texts, one per line; after a tab the second one of a pair; .csv: in two columns");
  shared_option(app, "--model", model, "a folder that finetune --save wrote")->required();
  shared_option(app, "--top", top, "classes of a text")->capture_default_str();
  must_be_positive(shared_option(app, "--seq", length, "default: as many as the model takes"));
  shared_option(app, "--batch", batch, "texts")->capture_default_str();
  device.add_to(app);
}

SentenceDataset Classify::read_texts() const {
  SentenceDataset data{.sentences = texts, .seconds = pairs};
  if (!file.empty()) {
    const Table table = read_table(file);
    for (size_t i = 0; i < table.rows.size(); ++i) {
      const std::vector<std::string>& row = table.rows[i];
      if (row.size() == 1 && row[0].find_first_not_of(" \t") == std::string::npos) continue;
      check<FileError>(row.size() <= 2, "classify",
                       "{}:{} must have a text, or a text and the second one, got {} columns", file,
                       table.lines[i], row.size());
      data.sentences.push_back(row[0]);
      if (row.size() > 1) data.seconds.push_back(row[1]);
    }
  }
  check(data.size() > 0, "classify", "there must be a text: on the command line or with --file");
  check(!data.has_pairs() || data.seconds.size() == data.size(), "classify",
        "all texts must have a second one or none of them, got {} texts and {} second ones",
        data.size(), data.seconds.size());
  return data;
}

namespace {

void print_text(const SentenceDataset& data, size_t i,
                std::span<const std::pair<size_t, double>> best,
                std::span<const std::string> class_names) {
  if (i > 0) fmt::print("\n");
  fmt::print("{}\n", data.sentences[i]);
  if (data.has_pairs()) fmt::print("{}\n", data.seconds[i]);
  for (const auto& [index, probability] : best)
    fmt::print("{:5.1f} %  {}\n", 100 * probability, class_names[index]);
}

void print_all(const SentenceDataset& data, ClassifySteps& steps, TextLoader& loader, size_t top,
               std::span<const std::string> class_names) {
  const size_t classes = class_names.size();
  size_t text = 0;
  for (int64_t b = 0; b < loader.batches(); ++b) {
    const std::vector<float> scores = steps.scores(loader.batch(0, b));
    for (size_t at = 0; at < scores.size(); at += classes)
      print_text(data, text++, best_of(std::span(scores).subspan(at, classes), top, "classify"),
                 class_names);
  }
}

}  // namespace

void Classify::run() const {
  check(top > 0 && batch > 0 && length >= 0, "options",
        "--top, --batch and --seq must be positive, got {}, {} and {}", top, batch, length);
  const SentenceDataset data = read_texts();
  const ModelFolder from{model};
  check<FileError>(
      std::filesystem::exists(from.weights()), "classify",
      "there must be a classifier in '{}', got no model; bert finetune --save makes one", model);
  const Tokenizer tokenizer = from.load_tokenizer();
  const BertConfig config = from.load_config(tokenizer.vocabulary());
  const std::vector<std::string> names = bert_class_names(from.config(), from.weights());
  check<FileError>(!data.has_pairs() || config.type_vocab_size > 1, "classify",
                   "the model in '{}' must have 2 token types for pairs, got {}", model,
                   config.type_vocab_size);
  const int64_t longest = config.max_position_embeddings / length_multiple * length_multiple;
  check(padded_length(length) <= longest && longest > 0, "options",
        "--seq must be at most the model's {}, got {}", longest, length);

  const std::vector<TextExample> examples =
      sentence_examples(data, tokenizer, length ? length : longest);
  const auto loader_of = [&](int64_t size) {
    return TextLoader(examples, tokenizer.vocabulary(), {.batch_size = size, .shuffle = false});
  };
  device.open();
  TrainingProgram planned = program(config, static_cast<int64_t>(names.size()));
  planned.evaluation = [&](int64_t size) { return largest_shapes(loader_of(size), 0); };
  const PlanningOptions plain;
  run_planned(std::move(planned), plain, [&](PlannedRun& run) {
    const NoGrad guard;
    ClassifySteps steps(config, static_cast<int64_t>(names.size()), run.settings());
    load_bert(from.weights(), steps.model);
    steps.model.eval();
    TextLoader loader = loader_of(run.settings().batch);
    print_all(data, steps, loader, static_cast<size_t>(top), names);
  });
}

TrainingProgram Classify::program(const BertConfig& config, int64_t classes) const {
  return {.title = fmt::format("classifier of {} classes", classes),
          .samples = "texts",
          .make =
              [=](const StepSettings& s) {
                return std::make_unique<ClassifySteps>(config, classes, s);
              },
          .settings = {.dtype = device.parsed_dtype(), .batch = batch},
          .trains = false,
          .loads = true,
          .words = command_line_words()};
}

std::function<void()> add_classify(CLI::App& app) {
  return add_command<Classify>(app);
}

}  // namespace rw
