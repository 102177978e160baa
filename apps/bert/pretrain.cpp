#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/bert/commands.h"
#include "apps/common/training_loop.h"
#include "core/base/rng.h"
#include "core/files/cache.h"
#include "data/base/files.h"
#include "data/base/prefetch.h"
#include "data/content_hash.h"
#include "data/text/text.h"
#include "data/text/text_loader.h"
#include "data/text/tokenizer_training.h"
#include "io/models/bert.h"

namespace rw {

std::string default_model_folder() {
  return (user_cache_directory() / "bert").string();
}

BertConfig ModelFolder::load_config(const Vocabulary& tokens) const {
  const BertConfig loaded = read_bert_config(config());
  check<FileError>(tokens.size() == loaded.vocab_size, "bert",
                   "'{}' has {} tokens and '{}' a vocab_size of {}: they must be of one model",
                   vocabulary().string(), tokens.size(), config().string(), loaded.vocab_size);
  return loaded;
}

void Pretrain::add_to(CLI::App& app) {
  command = &app;
  app.add_option("--text", text, "text files; without them the licences that Debian comes with");
  app.add_option("--model", model, "tiny, mini, small, medium, base, large or a config.json")
      ->capture_default_str();
  app.add_option("--vocab", vocabulary, "vocab.txt; without it one is made from the text");
  app.add_option("--vocab-size", vocabulary_size, "most tokens of a vocabulary that is made")
      ->capture_default_str();
  app.add_option("--seq", length, "tokens per sequence")->capture_default_str();
  app.add_option("--batch", batch, "sequences per step")->capture_default_str();
  app.add_option("--accumulate", accumulate, "steps per update of the weights")
      ->capture_default_str();
  app.add_option("--checkpoint-every", checkpoint_every,
                 "layers per segment of recomputed activations; 0: keep all activations")
      ->capture_default_str();
  app.add_flag("--host-boundaries", host_boundaries,
               "what lies between segments waits in host memory");
  app.add_option("--steps", steps, "steps of training")->capture_default_str();
  lr.add_to(app);
  app.add_option("--weight-decay", weight_decay, "of matrices")->capture_default_str();
  state.add_to(app);
  app.add_flag("--whole-words", whole_words, "mask all pieces of a word or none");
  app.add_option("--seed", seed, "of weights, order and masks")->capture_default_str();
  app.add_option("--save", save, "folder for the trained model")->capture_default_str();
  app.add_option("--resume", resume,
                 "keep training snapshots in this folder and go on from the newest, if any");
  app.add_flag("--restart", restart, "remove the snapshots in that folder and start from zero")
      ->needs("--resume");
  app.add_option("--snapshot-every", snapshot_every, "steps between them")->capture_default_str();
  app.add_option("--report", report, "write all figures of the run to this JSON file");
  app.add_flag("--quiet", quiet, "print the results only");
  device.add_to(app);
  planning.add_to(app);
  numerics.add_to(app);
  average.add_to(app);
  ranks.add_to(app);
}

namespace {

void check_options(const Pretrain& o) {
  o.numerics.scaler(o.device.parsed_dtype());
  o.average.check_numbers();
  check(o.batch > 0 && o.accumulate > 0 && o.steps > 0 && o.snapshot_every > 0, "options",
        "--batch, --accumulate, --steps and --snapshot-every must be positive");
  check(o.length >= 8, "options", "--seq must be at least 8, got {}", o.length);
  check(o.checkpoint_every >= 0, "options", "--checkpoint-every must not be negative, got {}",
        o.checkpoint_every);
  o.lr.rate(o.batch, o.accumulate);  // checks
}

// The text as sequences of tokens; every 20th is held out for the evaluation.
struct Corpus {
  Tokenizer tokenizer;
  std::vector<TextExample> train, held_out;

  explicit Corpus(const Pretrain& o) : Corpus(o, documents(o)) {}

 private:
  Corpus(const Pretrain& o, const std::vector<Document>& documents)
      : tokenizer(o.vocabulary.empty() ? train_vocabulary(documents, {.size = o.vocabulary_size})
                                       : Vocabulary::load(o.vocabulary)) {
    std::vector<TextExample> all = pack_sequences(documents, tokenizer, {.max_length = o.length});
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

class Pretraining {
 public:
  Pretraining(const Pretrain& options, const Corpus& corpus, ProgramRun& run)
      : o_(options),
        corpus_(corpus),
        batch_(run.settings().batch),
        steps_(options.recipe(corpus.tokenizer.vocabulary().size()), run.settings()),
        loader_(corpus_.train, corpus_.tokenizer.vocabulary(), loader_options(o_)),
        loop_(loop_options(), steps_.model, *steps_.optimizer, steps_.meter, run, &steps_.numerics,
              steps_.average.get()) {
    const auto updates = static_cast<uint32_t>((o_.steps + o_.accumulate - 1) / o_.accumulate);
    steps_.optimizer->set_schedule(Schedule::linear(updates, updates / 10));
  }

  void run();             // from the newest snapshot on, if there is one
  Evaluation evaluate();  // on the sequences held out
  static void print(const Evaluation& evaluation);
  void save() const;
  nlohmann::json report() const;  // of the training alone

 private:
  LoopOptions loop_options() const;
  const BertConfig& config() const { return steps_.model.bert.config(); }
  void introduce() const;

  const Pretrain& o_;
  const Corpus& corpus_;
  const int64_t batch_;
  PretrainSteps steps_;
  TextLoader loader_;
  TrainingLoop loop_;
};

LoopOptions Pretraining::loop_options() const {
  return {.steps = o_.steps,
          .batches = loader_.batches(),
          .samples = o_.batch * o_.length,
          .unit = "tokens",
          .quiet = o_.quiet,
          .snapshots = o_.resume,
          .steps_per_snapshot = o_.snapshot_every,
          .parallel = steps_.parallel.get(),
          .restart = o_.restart,
          .settings = run_settings(*o_.command, o_.lr.rate(o_.batch, o_.accumulate),
                                   {content_hash(corpus_.train), content_hash(corpus_.held_out)})};
}

void Pretraining::introduce() const {
  if (o_.quiet) return;
  fmt::print(
      "BERT {} ({} parameters, {} tokens) in {} on {}{}: {} sequences of text, {} steps of {}{}\n",
      o_.model, steps_.model.parameter_count(), config().vocab_size, o_.device.dtype,
      default_device()->info().name, of_ranks(), corpus_.train.size(), o_.steps, o_.batch,
      o_.lr.str(o_.batch, o_.accumulate));
}

void Pretraining::run() {
  loop_.resume();
  introduce();
  RankStream<TextLoader> stream(loader_, loop_.start());
  loop_.run([&](int64_t) { steps_.step(stream.next()); },
            [this] {
              const Evaluation found = evaluate();
              if (!o_.quiet) print(found);
              return found.json("held_out_");
            });
}

Evaluation Pretraining::evaluate() {
  TextLoaderOptions options = loader_options(o_);
  options.shuffle = false;
  options.batch_size = batch_;
  return evaluate_both(steps_, [&] {
    return TextLoader(corpus_.held_out, corpus_.tokenizer.vocabulary(), options);
  });
}

void Pretraining::print(const Evaluation& evaluation) {
  evaluation.print([](const char* whose, const Meter::Values& values) {
    fmt::print("held-out text: loss {}{:.3f}, {:.1f} % of the masked tokens right\n", whose,
               values.loss, 100 * values.accuracy);
  });
}

void Pretraining::save() const {
  const WholeParameters whole(steps_.parallel.get());
  if (!is_first_rank()) return;
  const ModelFolder to{o_.save};
  corpus_.tokenizer.vocabulary().save(to.vocabulary());
  write_bert_config(to.config(), config(), "BertForMaskedLM");
  save_model(to.weights(), steps_.model);
  if (steps_.average)
    at_average(*steps_.average,
               [&] { save_model(average_path(to.weights().string()), steps_.model); });
  default_device()->end_step();
}

nlohmann::json Pretraining::report() const {
  nlohmann::json report = loop_.json();
  report.update({{"parameters", steps_.model.parameter_count()},
                 {"vocabulary", config().vocab_size},
                 {"train_sequences", corpus_.train.size()},
                 {"checkpoint_every", o_.checkpoint_every},
                 {"device", device_json()}});
  return report;
}

}  // namespace

BertRecipe Pretrain::recipe(int64_t tokens) const {
  const bool given = model.ends_with(".json");
  BertConfig config = given ? read_bert_config(model) : BertConfig::preset(model);
  // The published 0.02 suits the width of base. Narrow models whose first sums are as large as
  // base's learn to use context sooner.
  if (!given)
    config.initializer_range *= std::sqrt(768.0 / static_cast<double>(config.hidden_size));
  config.vocab_size = tokens;
  check(padded_length(length) <= config.max_position_embeddings, "options",
        "--seq must be at most the model's {}, got {}", config.max_position_embeddings, length);
  BertRecipe recipe = {.config = config,
                       .length = padded_length(length),
                       .lr = static_cast<float>(lr.rate(batch, accumulate)),
                       .weight_decay = static_cast<float>(weight_decay),
                       .masking = {.whole_words = whole_words},
                       .numerics = numerics,
                       .average = average};
  state.apply(recipe);
  return recipe;
}

TrainingProgram Pretrain::program(int64_t tokens) const {
  const BertRecipe made = recipe(tokens);
  return {
      .title = fmt::format("BERT {} with {} tokens, {} per sequence, {} of them masked", model,
                           tokens, made.length, made.predictions()),
      .samples = "sequences",
      .make = [made](const StepSettings& s) { return std::make_unique<PretrainSteps>(made, s); },
      .settings = ranks.of_rank({.dtype = device.parsed_dtype(),
                                 .batch = batch,
                                 .accumulate = accumulate,
                                 .checkpoint = checkpoint_every > 0 ? "block" : "none",
                                 .checkpoint_every = checkpoint_every,
                                 .host_boundaries = host_boundaries}),
      .outline = {.saves = true},
      .estimator_states = state.estimator_states(),
      .words = command_line_words("--checkpoint-every 1")};
}

namespace {

void pretrain(const Pretrain& options, const Corpus& corpus, ProgramRun& run) {
  Pretraining training(options, corpus, run);
  training.run();
  training.save();
  fmt::print("saved in {}\n", options.save);
  const ReportFile file(options.report);
  nlohmann::json report = training.report();
  file.write_so_far(report);
  const Evaluation held_out = training.evaluate();
  Pretraining::print(held_out);
  const RunAccount account = run.account();
  fmt::print("\n{}", account.str());
  report.update(held_out.json("held_out_"));
  report["device"] = account_json(account);
  file.write(report);
}

}  // namespace

// Without the text, a vocabulary that is to be made from it counts as full.
void Pretrain::run() {
  ranks.share_out(accumulate);
  check_options(*this);
  if (planning.plan)
    return run_plan(
        program(vocabulary.empty() ? vocabulary_size : Vocabulary::load(vocabulary).size()),
        planning, device, report);
  if (save == default_model_folder()) cache_directory();  // it must be this user's alone
  device.open();
  manual_seed(seed);
  const Corpus corpus(*this);
  TrainingProgram planned = program(corpus.tokenizer.vocabulary().size());
  const auto samples = static_cast<int64_t>(corpus.train.size());
  planned.settings.batch = std::min(batch, samples);
  planned.outline.steps = batches_of(samples);
  planned.outline.evaluation = own_batches_of(static_cast<int64_t>(corpus.held_out.size()));
  ProgramRun run(std::move(planned), planning);
  run.guard([&] { pretrain(*this, corpus, run); });
}

}  // namespace rw
