#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/lm/commands.h"
#include "apps/lm/steps.h"
#include "core/base/rng.h"
#include "core/files/cache.h"
#include "data/base/files.h"
#include "data/content_hash.h"
#include "data/text/text.h"
#include "data/tokenizers/bpe_training.h"
#include "io/models/decoder.h"
#include "trainer/language/language_model.h"
#include "trainer/program/shared_options.h"
#include "trainer/trainer.h"

namespace rw {

std::string default_lm_folder() {
  return (user_cache_directory() / "lm").string();
}

// Trains a language model, from scratch or from a model in files.
struct LmTrain : TrainerOptions {
  LmTrain()
      : TrainerOptions{.device = {.dtype = ""},
                       .batch = 8,
                       .samples = "windows",
                       .random = "weights and order",
                       .segments = {"block"},
                       .joins_segments = true,
                       .divides_mlps = true,
                       .unit = "tokens",
                       .has_accuracy = false,
                       .figures = "held_out_"} {}

  std::vector<std::string> data;  // text files
  std::string config = "tiny";    // the model, where it is new
  std::string model;              // the model that it begins with
  std::string tokenizer;          // another than the model's own
  std::string save = default_lm_folder();
  std::string prompt = "The ";  // of the samples before and after
  int64_t length = 128;
  int64_t vocabulary_size = 0;  // of a new model; 0: as its config says
  AdamWRecipe update;

  void add_to(CLI::App& app);
  void check_numbers() const;  // ValueError
  TokenWindowsOptions windows(int64_t batch_size, bool shuffle) const;
  void run();

 private:
  void complete();  // fills in what depends on the model
  // The training of a model whose tokenizer has so many tokens; 0: that is yet to be made.
  LmRecipe recipe(int64_t tokens);
  TrainingProgram program(const LmRecipe& recipe) const;

  std::optional<DecoderFiles> files_;  // of --model
};

void LmTrain::add_to(CLI::App& app) {
  shared_option(app, "--data", data,
                "text files; without them, the licences that come with Debian");
  shared_option(app, "--config", config,
                "of a new one, a preset as tiny, qwen3-0.6b or smollm2-135m, or a config.json")
      ->capture_default_str();
  shared_option(app, "--model", model,
                "a folder or FILE.gguf to train further, instead of --config");
  shared_option(app, "--tokenizer", tokenizer,
                "tokenizer.json, or a folder or FILE.gguf that has one; without it, the one of "
                "--model, or for a new model one that is trained on the text");
  shared_option(app, "--vocab-size", vocabulary_size, "0: as many as the new model's config says")
      ->capture_default_str();
  shared_option(app, "--seq", length)->capture_default_str();
  shared_option(app, "--steps", steps, "default: 400 for a new model; 0: as --epochs says");
  shared_option(app, "--epochs", epochs, "instead of --steps (default for --model: 1)");
  shared_option(app, "--save", save, "a folder, or FILE.gguf")->capture_default_str();
  app.add_option("--sample", prompt, "a text to continue before and after training; empty: none")
      ->capture_default_str();
  update.add_to(app);
  TrainerOptions::add_to(app);
}

void LmTrain::check_numbers() const {
  TrainerOptions::check_numbers();
  check(length > 0, "options", "--seq must be positive, got {}", length);
  check(vocabulary_size >= 0, "options", "--vocab-size must be positive, got {}", vocabulary_size);
}

namespace {

// The text as tokens; the last twentieth is held out for the evaluation.
struct Corpus {
  BpeTokenizer tokenizer;
  std::vector<int32_t> tokens;
  size_t held_out;  // where that part begins

  // Without a tokenizer, one of at most `vocabulary` tokens is made from the text.
  Corpus(const LmTrain& o, const std::optional<BpeTokenizer>& given, int64_t vocabulary)
      : Corpus(o, given, vocabulary, texts_of(o)) {}

  std::span<const int32_t> train() const { return std::span(tokens).first(held_out); }
  std::span<const int32_t> test() const { return std::span(tokens).subspan(held_out); }

 private:
  Corpus(const LmTrain& o, const std::optional<BpeTokenizer>& given, int64_t vocabulary,
         const std::vector<std::string>& texts)
      : tokenizer(given ? *given : BpeTokenizer(train_bpe(texts, {.size = vocabulary}))) {
    for (const std::string& text : texts) {
      const std::vector<int32_t> ids = tokenizer.encode(text, false, true, false);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      if (tokenizer.eos()) tokens.push_back(*tokenizer.eos());
    }
    const size_t window = static_cast<size_t>(o.length) + 1;
    check(tokens.size() >= 2 * window, "options",
          "the text must have {} tokens for windows of {}, to train and to test with, got {}",
          2 * window, o.length, tokens.size());
    held_out = tokens.size() - std::max(tokens.size() / 20, window);
  }

  static std::vector<std::string> texts_of(const LmTrain& o) {
    const std::vector<std::filesystem::path> given(o.data.begin(), o.data.end());
    return read_texts(given.empty() ? default_text_files() : given);
  }
};

class LmTraining : public Trainer<LmTask, TokenWindows> {
 public:
  LmTraining(const LmTrain& options, const LmRecipe& recipe, const DecoderFiles* files,
             const Corpus& corpus, PlannedRun& run)
      : Trainer(
            options, run, recipe,
            std::make_unique<TokenWindows>(corpus.train(), options.windows(options.batch, true)),
            run_settings(*options.command, options.rate(),
                         {content_hash(std::span(corpus.tokens))})),
        o_(options),
        files_(files),
        corpus_(corpus) {}

 protected:
  void load(LmSteps& steps) override {
    if (files_) files_->load(steps.model);
    sample("before");
  }
  std::string title() const override {
    return fmt::format("{} ({} parameters, {} tokens)",
                       o_.model.empty() ? o_.config : "the model of " + o_.model,
                       steps().model.parameter_count(), steps().model.config().vocab_size);
  }
  std::string steps_text() const override {
    return fmt::format("of {} windows of {} tokens, from a text of {}", batch(), o_.length,
                       corpus_.tokens.size());
  }
  std::unique_ptr<TokenWindows> testing(int64_t batch) override {
    return std::make_unique<TokenWindows>(corpus_.test(), o_.windows(batch, false));
  }
  std::string result(const char* whose, const Meter::Values& values) const override {
    return fmt::format("held-out text: loss {}{:.3f}, perplexity {:.1f}", whose, values.loss,
                       std::exp(values.loss));
  }
  nlohmann::json evaluate(bool quiet) override {
    nlohmann::json found = Trainer::evaluate(quiet);
    if (!quiet) sample("after");
    return found;
  }
  void save(bool is_average) override {
    if (o_.save.empty()) return;
    save_language_model(weights_path(o_.save, is_average), steps().model, corpus_.tokenizer);
    if (!is_average) fmt::print("saved in {}\n", o_.save);
  }
  void add_figures(nlohmann::json& report) const override {
    report.update({{"parameters", steps().model.parameter_count()},
                   {"vocabulary", steps().model.config().vocab_size},
                   {"tokens", corpus_.tokens.size()},
                   {"checkpoint_every", o_.checkpoint_every}});
  }

 private:
  void sample(const char* when) {
    if (o_.quiet || o_.prompt.empty() || !is_first_rank()) return;
    Decoder& model = steps().model;
    const std::vector<int32_t> ids = corpus_.tokenizer.encode(o_.prompt, false, true, false);
    Generator generator(o_.seed);
    const TextOptions options{
        .generate = {.max_new_tokens = 60,
                     .sample = {.temperature = 0.7f, .top_p = 0.9f, .generator = &generator}}};
    const GeneratedText text = continue_text(model, corpus_.tokenizer, ids, options);
    fmt::print("a text {} training:\n  {}{}\n", when, o_.prompt, indented(text.text));
  }

  const LmTrain& o_;
  const DecoderFiles* const files_;  // those that it begins with; null: the model is new
  const Corpus& corpus_;
};

}  // namespace

TokenWindowsOptions LmTrain::windows(int64_t batch_size, bool shuffle) const {
  return {.length = length, .batch_size = batch_size, .shuffle = shuffle, .seed = seed};
}

// A model that is loaded is computed as its files say, and passes over the data once. Weights that
// are new stay within f16.
void LmTrain::complete() {
  if (!model.empty()) files_.emplace(model);
  if (device.dtype.empty()) device.dtype = name(files_ ? files_->working_dtype() : DType::f16);
  constexpr int64_t steps_of_new = 400;
  if (command->count("--steps") == 0)
    steps = model.empty() && command->count("--epochs") == 0 ? steps_of_new : 0;
}

// A new model has at least as many embeddings as its tokenizer has tokens.
LmRecipe LmTrain::recipe(int64_t tokens) {
  LmRecipe made = {
      .is_loaded = !model.empty(), .length = length, .numerics = numerics, .average = average};
  if (files_) {
    made.config = files_->config();
  } else {
    made.config =
        config.ends_with(".json") ? read_decoder_config(config) : DecoderConfig::preset(config);
    made.config.vocab_size =
        vocabulary_size > 0 ? vocabulary_size : std::max(made.config.vocab_size, tokens);
  }
  check(length <= made.config.max_position_embeddings, "options",
        "--seq must be at most the model's {} positions, got {}",
        made.config.max_position_embeddings, length);
  chosen = rw::recipe({.kind = TrainingWork::Kind::language,
                       .is_loaded = made.is_loaded,
                       .parameters = made.config.matrix_elements(),
                       .batch = batch * accumulate});
  made.update = update.with(rate(), weight_decay);
  return made;
}

TrainingProgram LmTrain::program(const LmRecipe& made) const {
  return {.title = fmt::format("{} with {} tokens, windows of {}", model.empty() ? config : model,
                               made.config.vocab_size, length),
          .samples = "windows",
          .make = make_steps<LmTask>(made),
          .settings = settings(),
          .loads = !model.empty(),
          .saves = !save.empty(),
          .estimator_states = update.estimator_states(),
          .words = command_line_words(),
          .longest = made.config.max_position_embeddings};
}

void LmTrain::run() {
  complete();
  ranks.share_out(accumulate);
  check_numbers();
  std::optional<BpeTokenizer> given;
  if (!tokenizer.empty() && model.empty()) given = read_tokenizer(tokenizer);
  const LmRecipe made = recipe(given ? given->size() : 0);
  if (planning.plan) return run_plan(program(made), planning, device);
  if (save == default_lm_folder()) {
    cache_directory();  // it must be this user's alone
    keep_earlier(*command, (std::filesystem::path(save) / "config.json").string());
  }
  device.open();
  manual_seed(seed);
  if (files_) given = read_tokenizer(*files_, tokenizer);
  const Corpus corpus(*this, given, made.config.vocab_size);
  if (!files_) check_vocabulary(corpus.tokenizer, made.config, config);
  check_tokens(corpus.tokens, corpus.tokenizer, made.config.vocab_size);
  TrainingProgram planned = program(made);
  const TokenWindows train(corpus.train(), windows(batch, true));
  planned.settings.batch = std::min(batch, train.windows());
  planned.steps = batches_of(train.windows());
  planned.evaluation = own_batches_of(TokenWindows(corpus.test(), windows(batch, false)).windows());
  per_sample = length;
  fit_memory(planned);
  run_planned(std::move(planned), planning, [&](PlannedRun& run) {
    LmTraining(*this, made, files_ ? &*files_ : nullptr, corpus, run).run();
  });
}

std::function<void()> add_train(CLI::App& app) {
  return add_command<LmTrain>(app);
}

}  // namespace rw
