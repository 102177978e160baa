#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>

#include "apps/bert/commands.h"
#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/text/sentences.h"
#include "data/text/text_loader.h"
#include "io/models/bert.h"
#include "trainer/loop/batch_shapes.h"
#include "trainer/program/shared_options.h"
#include "trainer/trainer.h"

namespace rw {

// Trains a classifier of sentences from a pre-trained model.
struct Finetune : BertOptions {
  Finetune()
      : BertOptions{{.checkpoint = "block",
                     .samples = "sentences",
                     .random = "order, dropout and the new layer",
                     .figures = "dev_"}} {}

  std::string task, model = default_model_folder(), save;
  int64_t classes = 2;  // with --plan

  void add_to(CLI::App& app);
  void run();
  // Returns the training of such a model with sequences of recipe.length tokens.
  TrainingProgram program(const BertRecipe& recipe) const;
  BertRecipe recipe(const BertConfig& config) const;
};

void Finetune::add_to(CLI::App& app) {
  app.add_option(
      "--task", task,
      "the folder with train.tsv and dev.tsv (or dev_matched.tsv, or validation.tsv), or the same "
      "as .csv: columns sentence and label, or sentence1, sentence2 and label for pairs; labels "
      "are numbers or words");
  shared_option(app, "--model", model, "the folder of a pre-trained model")->capture_default_str();
  shared_option(app, "--seq", length)->capture_default_str();
  shared_option(app, "--epochs", epochs, "default 3, more where there are few sentences");
  must_be_positive(shared_option(app, "--steps", steps, "instead of --epochs"));
  shared_option(app, "--save", save, "a folder");
  BertOptions::add_to(app);
  shared_option(app, "--classes", classes)->needs("--plan")->capture_default_str();
}

namespace {

// The sentences and their vocabulary.
struct Sentences {
  Tokenizer tokenizer;
  SentenceDataset train_data, dev_data;
  std::vector<TextExample> train, dev;

  explicit Sentences(const Finetune& o)
      : tokenizer(ModelFolder{o.model}.load_tokenizer()),
        train_data(load_sentences(table_in(o.task, {"train"}))),
        dev_data(load_sentences(table_in(o.task, dev_names), train_data.class_names)),
        train(sentence_examples(train_data, tokenizer, o.length)),
        dev(sentence_examples(dev_data, tokenizer, o.length)) {
    check<FileError>(
        classes() > 1 && dev_data.labels.size() == dev_data.size(), "finetune",
        "the tables train and dev in '{}' must have labels, of 2 classes or more; got {} "
        "classes and {} labels to test with",
        o.task, classes(), dev_data.labels.size());
    check<FileError>(train_data.has_pairs() == dev_data.has_pairs(), "finetune",
                     "the tables train and dev in '{}' must both have pairs or both sentences",
                     o.task);
  }
  int64_t classes() const { return static_cast<int64_t>(train_data.class_names.size()); }
  TextLoader train_loader(const Finetune& o, int64_t batch) const {
    return {train,
            tokenizer.vocabulary(),
            {.batch_size = batch,
             .bucket_batches = 50,
             .length_multiple = length_multiple,
             .seed = o.seed}};
  }
  TextLoader dev_loader(int64_t batch) const {
    return {dev, tokenizer.vocabulary(), {.batch_size = batch, .shuffle = false}};
  }

 private:
  // MNLI has two such files; the one with the genres of the training set is taken.
  static constexpr std::initializer_list<const char*> dev_names = {"dev", "dev_matched",
                                                                   "validation", "val", "valid"};
  // The table of the first of these names that has one.
  static std::filesystem::path table_in(const std::filesystem::path& task,
                                        std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto tsv = task / (name + std::string(".tsv")),
                 csv = task / (name + std::string(".csv"));
      const bool has_tsv = std::filesystem::exists(tsv), has_csv = std::filesystem::exists(csv);
      check<FileError>(!has_tsv || !has_csv, "finetune",
                       "'{}' must have one table {}, got a .tsv and a .csv; remove one",
                       task.string(), name);
      if (has_tsv || has_csv) return has_tsv ? tsv : csv;
    }
    return task / (*names.begin() + std::string(".tsv"));  // which the reader misses
  }
};

class Finetuning : public Trainer<FinetuneTask, TextLoader> {
 public:
  Finetuning(const Finetune& options, const Sentences& sentences, const BertRecipe& recipe,
             PlannedRun& run)
      : Trainer(options, run, recipe,
                std::make_unique<TextLoader>(sentences.train_loader(options, options.batch)),
                run_settings(*options.command, options.rate(),
                             {content_hash(sentences.train), content_hash(sentences.dev)})),
        o_(options),
        sentences_(sentences) {}

 protected:
  void load(FinetuneSteps& steps) override {
    load_bert(ModelFolder{o_.model}.weights(), steps.model);
  }
  std::string title() const override {
    return fmt::format("classifier of {} classes ({} parameters)", sentences_.classes(),
                       steps().model.parameter_count());
  }
  std::string steps_text() const override {
    return fmt::format("of {}, of {} {}", batch(), sentences_.train.size(),
                       sentences_.train_data.has_pairs() ? "pairs" : "sentences");
  }
  std::unique_ptr<TextLoader> testing(int64_t batch) override {
    return std::make_unique<TextLoader>(sentences_.dev_loader(batch));
  }
  std::string result(const char* whose, const Meter::Values& values) const override {
    return fmt::format("dev accuracy {}{:.2f} %, loss {:.3f}", whose, 100 * values.accuracy,
                       values.loss);
  }
  void save(bool is_average) override {
    if (o_.save.empty()) return;
    const ModelFolder to{o_.save};
    if (is_average) return save_model(weights_path(to.weights(), true), steps().model);
    to.save(steps().model, sentences_.tokenizer, steps().model.bert.config(),
            "BertForSequenceClassification", sentences_.train_data.class_names);
  }
  void add_figures(nlohmann::json& report) const override {
    report.update({{"checkpoint_every", o_.checkpoint_every},
                   {"classes", sentences_.train_data.class_names}});
  }

 private:
  const Finetune& o_;
  const Sentences& sentences_;
};

}  // namespace

BertRecipe Finetune::recipe(const BertConfig& config) const {
  BertRecipe recipe = BertOptions::recipe(config);
  recipe.classes = classes;
  return recipe;
}

TrainingProgram Finetune::program(const BertRecipe& recipe) const {
  return {.title = fmt::format("classifier of {} classes, {} tokens per sentence", recipe.classes,
                               recipe.length),
          .samples = "sentences",
          .make = make_steps<FinetuneTask>(recipe),
          .settings = settings(),
          .loads = true,
          .saves = !save.empty(),
          .estimator_states = update.estimator_states(),
          .words = command_line_words()};
}

void Finetune::run() {
  ranks.share_out(accumulate);
  check_numbers();
  check(classes > 1, "options", "--classes must be at least 2, got {}", classes);
  check(planning.plan || !task.empty(), "options", "training needs sentences: --task DIR");
  const ModelFolder from{model};
  if (planning.plan) {
    const bool there = std::filesystem::exists(from.config());
    const BertConfig config = there ? read_bert_config(from.config()) : BertConfig::preset(model);
    return run_plan(program(recipe(config)), planning, device);
  }
  if (model == default_model_folder()) cache_directory();  // it must be this user's alone
  check<FileError>(std::filesystem::exists(from.weights()), "finetune",
                   "there is no model in '{}'; pre-train one first", model);
  device.open();
  manual_seed(seed);
  const Sentences sentences(*this);
  const BertConfig config = from.load_config(sentences.tokenizer.vocabulary());
  chosen = rw::recipe({.kind = TrainingWork::Kind::text_classes,
                       .is_loaded = true,
                       .parameters = config.matrix_elements(),
                       .batch = batch * accumulate,
                       .samples = static_cast<int64_t>(sentences.train.size())});
  if (steps == 0 && command->count("--epochs") == 0) epochs = chosen.passes;
  BertRecipe made = recipe(config);
  made.classes = sentences.classes();
  check<FileError>(!sentences.train_data.has_pairs() || made.config.type_vocab_size > 1, "finetune",
                   "the model in '{}' must have 2 token types for pairs, got a type_vocab_size of "
                   "{}; pre-train one that has",
                   model, made.config.type_vocab_size);
  const int64_t rows = std::min(batch, static_cast<int64_t>(sentences.train.size()));
  const BatchShapes shapes = remembered([&](int64_t size) {
    const TextLoader loader = sentences.train_loader(*this, size);
    return largest_shapes(loader, steps ? steps : epochs * loader.batches());
  });
  made.length = 0;
  for (const BatchShape& shape : shapes(rows))
    if (shape.rows == rows) made.length = std::max(made.length, shape.length);
  if (made.length == 0) made.length = shapes(rows).front().length;  // none of the batches is full
  TrainingProgram planned = program(made);
  planned.settings.batch = rows;
  planned.steps = shapes;
  planned.evaluation = [&](int64_t size) { return largest_shapes(sentences.dev_loader(size), 0); };
  fit_memory(planned);
  run_planned(std::move(planned), planning,
              [&](PlannedRun& run) { Finetuning(*this, sentences, made, run).run(); });
}

std::function<void()> add_finetune(CLI::App& app) {
  return add_command<Finetune>(app);
}

}  // namespace rw
