#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/bert/commands.h"
#include "core/base/rng.h"
#include "core/files/cache.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/text/text.h"
#include "data/text/text_loader.h"
#include "data/text/tokenizer_training.h"
#include "io/models/bert.h"
#include "trainer/program/shared_options.h"
#include "trainer/trainer.h"

namespace rw {

// Masked-language-model training from scratch.
struct Pretrain : BertOptions {
  Pretrain()
      : BertOptions{{.batch = 16,
                     .steps = 700,
                     .accumulate = 2,
                     .checkpoint = "block",
                     .samples = "sequences",
                     .random = "weights, order and masks",
                     .unit = "tokens",
                     .figures = "held_out_"}} {}

  std::vector<std::string> text;
  std::string model = "tiny", vocabulary, save = default_model_folder();
  int64_t vocabulary_size = 4096;
  bool whole_words = false;

  void add_to(CLI::App& app);
  void run();
  // Returns the training of a model whose vocabulary has so many tokens.
  TrainingProgram program(int64_t vocabulary) const;
  BertRecipe recipe(int64_t vocabulary) const;
};

std::string default_model_folder() {
  return (user_cache_directory() / "bert").string();
}

BertConfig ModelFolder::load_config(const Vocabulary& tokens) const {
  const BertConfig loaded = read_bert_config(config());
  check<FileError>(tokens.size() == loaded.vocab_size, "bert",
                   "'{}' has {} tokens and '{}' a vocab_size of {}: they must be of one model",
                   folder.string(), tokens.size(), config().string(), loaded.vocab_size);
  check_folder(folder);
  return loaded;
}

void ModelFolder::save(const Module& model, const Tokenizer& tokenizer, const BertConfig& config,
                       const std::string& architecture,
                       std::span<const std::string> class_names) const {
  AtomicFolder files(folder);
  const ModelFolder to{files.staged()};
  write_bert_tokenizer(files.staged(), tokenizer);
  write_bert_config(to.config(), config, architecture, class_names);
  save_model(to.weights(), model);
  const std::string average = std::filesystem::path(weights_path(to.weights(), true)).filename();
  files.commit(
      [&](const std::string& name) { return name == average || is_of_bert_tokenizer(name); });
}

void Pretrain::add_to(CLI::App& app) {
  app.add_option("--text", text, "text files; without them, the licences that come with Debian");
  shared_option(app, "--model", model, "tiny, mini, small, medium, base, large or a config.json")
      ->capture_default_str();
  app.add_option("--vocab", vocabulary,
                 "a vocab.txt; without it, a vocabulary is made from the text");
  shared_option(app, "--vocab-size", vocabulary_size)->capture_default_str();
  shared_option(app, "--seq", length)->capture_default_str();
  must_be_positive(shared_option(app, "--steps", steps))->capture_default_str();
  app.add_flag("--whole-words", whole_words, "mask all pieces of a word or none");
  shared_option(app, "--save", save, "a folder")->capture_default_str();
  BertOptions::add_to(app);
}

namespace {

// The text as sequences of tokens; every 20th is held out for the evaluation.
struct Corpus {
  Tokenizer tokenizer;
  std::vector<TextExample> train, held_out;

  explicit Corpus(const Pretrain& o) : Corpus(o, documents(o)) {}

 private:
  Corpus(const Pretrain& o, const std::vector<Document>& documents)
      : tokenizer(o.vocabulary.empty() ? train_vocabulary(documents, {.size = o.vocabulary_size})
                                       : Vocabulary::load(o.vocabulary)) {
    std::vector<TextExample> all = pack_sequences(documents, tokenizer, o.length);
    check(all.size() >= 2, "options", "the text is too short for sequences of {} tokens", o.length);
    for (size_t i = 0; i < all.size(); ++i)
      (i % 20 == 1 ? held_out : train).push_back(std::move(all[i]));
  }

  static std::vector<Document> documents(const Pretrain& o) {
    const std::vector<std::filesystem::path> given(o.text.begin(), o.text.end());
    return read_documents(given.empty() ? default_text_files() : given);
  }
};

TextLoaderOptions loader_options(const Pretrain& o) {
  return {.batch_size = o.batch,
          .fixed_length = padded_length(o.length),
          .masking = MaskingOptions{.whole_words = o.whole_words},
          .seed = o.seed};
}

class Pretraining : public Trainer<PretrainTask, TextLoader> {
 public:
  Pretraining(const Pretrain& options, const Corpus& corpus, PlannedRun& run)
      : Trainer(options, run, options.recipe(corpus.tokenizer.vocabulary().size()),
                std::make_unique<TextLoader>(corpus.train, corpus.tokenizer.vocabulary(),
                                             loader_options(options)),
                run_settings(*options.command, options.rate(),
                             {content_hash(corpus.train), content_hash(corpus.held_out)})),
        o_(options),
        corpus_(corpus) {}

 protected:
  std::string title() const override {
    return fmt::format("BERT {} ({} parameters, {} tokens)", o_.model,
                       steps().model.parameter_count(), config().vocab_size);
  }
  std::string steps_text() const override {
    return fmt::format("of {}, of {} sequences of text", batch(), corpus_.train.size());
  }
  std::unique_ptr<TextLoader> testing(int64_t batch) override {
    TextLoaderOptions options = loader_options(o_);
    options.shuffle = false;
    options.batch_size = batch;
    return std::make_unique<TextLoader>(corpus_.held_out, corpus_.tokenizer.vocabulary(), options);
  }
  std::string result(const char* whose, const Meter::Values& values) const override {
    return fmt::format("held-out text: loss {}{:.3f}, {:.1f} % of the masked tokens right", whose,
                       values.loss, 100 * values.accuracy);
  }
  void save(bool is_average) override {
    const ModelFolder to{o_.save};
    if (is_average) return save_model(weights_path(to.weights(), true), steps().model);
    to.save(steps().model, corpus_.tokenizer, config(), "BertForMaskedLM");
    fmt::print("saved in {}\n", o_.save);
  }
  void add_figures(nlohmann::json& report) const override {
    report.update({{"parameters", steps().model.parameter_count()},
                   {"vocabulary", config().vocab_size},
                   {"train_sequences", corpus_.train.size()},
                   {"checkpoint_every", o_.checkpoint_every}});
  }

 private:
  const BertConfig& config() const { return steps().model.bert.config(); }

  const Pretrain& o_;
  const Corpus& corpus_;
};

}  // namespace

BertRecipe Pretrain::recipe(int64_t tokens) const {
  const bool given = model.ends_with(".json");
  BertConfig config = given ? read_bert_config(model) : BertConfig::preset(model);
  // The published 0.02 suits the width of base. Narrow models whose first sums are as large as
  // base's learn to use context sooner.
  if (!given)
    config.initializer_range *= std::sqrt(768.0 / static_cast<double>(config.hidden_size));
  config.vocab_size = tokens;
  BertRecipe recipe = BertOptions::recipe(config);
  recipe.masking = {.whole_words = whole_words};
  return recipe;
}

TrainingProgram Pretrain::program(int64_t tokens) const {
  const BertRecipe made = recipe(tokens);
  return {.title = fmt::format("BERT {} with {} tokens, {} per sequence, {} of them masked", model,
                               tokens, made.length, made.predictions()),
          .samples = "sequences",
          .make = make_steps<PretrainTask>(made),
          .settings = settings(),
          .saves = true,
          .estimator_states = update.estimator_states(),
          .words = command_line_words()};
}

// Without the text, a vocabulary that is yet to be made from it is taken to be full.
void Pretrain::run() {
  ranks.share_out(accumulate);
  check_numbers();
  if (planning.plan)
    return run_plan(
        program(vocabulary.empty() ? vocabulary_size : Vocabulary::load(vocabulary).size()),
        planning, device);
  // The folder must belong to this user alone.
  if (save == default_model_folder()) {
    cache_directory();
    keep_earlier(*command, ModelFolder{save}.weights());
  }
  device.open();
  manual_seed(seed);
  const Corpus corpus(*this);
  const int64_t tokens = corpus.tokenizer.vocabulary().size();
  chosen = rw::recipe({.kind = TrainingWork::Kind::masked_language,
                       .parameters = recipe(tokens).config.matrix_elements(),
                       .batch = batch * accumulate});
  TrainingProgram planned = program(tokens);
  const auto samples = static_cast<int64_t>(corpus.train.size());
  planned.settings.batch = std::min(batch, samples);
  planned.steps = batches_of(samples);
  planned.evaluation = own_batches_of(static_cast<int64_t>(corpus.held_out.size()));
  per_sample = length;
  fit_memory(planned);
  run_planned(std::move(planned), planning,
              [&](PlannedRun& run) { Pretraining(*this, corpus, run).run(); });
}

std::function<void()> add_pretrain(CLI::App& app) {
  return add_command<Pretrain>(app);
}

}  // namespace rw
