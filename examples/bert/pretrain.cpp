#include <fmt/format.h>

#include <cmath>

#include "core/ops.h"
#include "data/files.h"
#include "data/prefetch.h"
#include "data/text.h"
#include "data/text_loader.h"
#include "data/tokenizer_training.h"
#include "examples/bert/batch.h"
#include "examples/bert/commands.h"
#include "examples/common/meter.h"
#include "examples/common/progress.h"
#include "io/bert.h"
#include "io/checkpoint.h"
#include "optim/accumulate.h"
#include "optim/adam.h"

namespace rw {

std::string default_model_folder() {
  return (cache_directory() / "bert").string();
}

void Pretrain::add_to(CLI::App& app) {
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
  app.add_option("--steps", steps, "steps of training")->capture_default_str();
  app.add_option("--lr", lr, "highest learning rate")->capture_default_str();
  app.add_option("--weight-decay", weight_decay, "of matrices")->capture_default_str();
  app.add_flag("--whole-words", whole_words, "mask all pieces of a word or none");
  app.add_option("--seed", seed, "of weights, order and masks")->capture_default_str();
  app.add_option("--save", save, "folder for the trained model")->capture_default_str();
  app.add_option("--resume", resume,
                 "keep training checkpoints in this folder and go on from the newest, if any");
  app.add_option("--save-every", save_every, "steps between them")->capture_default_str();
  app.add_option("--report", report, "write all figures of the run to this JSON file");
  app.add_flag("--quiet", quiet, "print the results only");
  device.add_to(app);
}

namespace {

void check_options(const Pretrain& o) {
  check(o.batch > 0 && o.accumulate > 0 && o.steps > 0 && o.save_every > 0, "options",
        "--batch, --accumulate, --steps and --save-every must be positive");
  check(o.length >= 8, "options", "--seq must be at least 8, got {}", o.length);
  check(o.checkpoint_every >= 0, "options", "--checkpoint-every must not be negative, got {}",
        o.checkpoint_every);
  check(std::isfinite(o.lr) && o.lr >= 0, "options", "--lr must be a number >= 0, got {}", o.lr);
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

BertConfig model_config(const Pretrain& o, const Vocabulary& vocabulary) {
  const bool given = o.model.ends_with(".json");
  BertConfig config = given ? read_bert_config(o.model) : BertConfig::preset(o.model);
  // The published 0.02 suits the width of base. Narrow models whose first sums are as large as
  // base's learn to use context sooner.
  if (!given)
    config.initializer_range *= std::sqrt(768.0 / static_cast<double>(config.hidden_size));
  config.vocab_size = vocabulary.size();
  check(o.length <= config.max_position_embeddings, "options",
        "--seq must be at most the model's {}, got {}", config.max_position_embeddings, o.length);
  return config;
}

TextLoaderOptions loader_options(const Pretrain& o) {
  return {.batch_size = o.batch,
          .masking = MaskingOptions{.whole_words = o.whole_words},
          .seed = o.seed};
}

class Pretraining {
 public:
  explicit Pretraining(const Pretrain& options)
      : o_(options),
        corpus_(options),
        dtype_(options.device.parsed_dtype()),
        config_(model_config(options, corpus_.tokenizer.vocabulary())),
        model_(config_, false),
        optimizer_(AdamW(decay_groups(model_.parameters(), static_cast<float>(o_.weight_decay)),
                         {.lr = static_cast<float>(o_.lr)}),
                   o_.accumulate),
        loader_(corpus_.train, corpus_.tokenizer.vocabulary(), loader_options(o_)) {
    model_.bert.set_checkpoint(o_.checkpoint_every);
    const auto updates = static_cast<uint32_t>((o_.steps + o_.accumulate - 1) / o_.accumulate);
    optimizer_.set_schedule(Schedule::linear(updates, updates / 10));
    optimizer_.set_max_norm(1);
    if (dtype_ == DType::f16) optimizer_.set_scaler(LossScaler::dynamic());
  }

  void introduce() const;
  void resume();  // from the newest checkpoint, if there is one
  void run();
  Meter::Values evaluate();  // on the sequences held out
  void save() const;
  nlohmann::json report(const Meter::Values& held_out, const MemoryReport& memory) const;

 private:
  TrainingState state() { return {.model = model_, .optimizer = optimizer_}; }
  nlohmann::json settings() const;  // what must not change when training goes on
  Tensor loss(const TextBatch& batch, Meter& meter);
  void step(const TextBatch& batch, Meter& meter);
  void note(int64_t step, const Meter::Values& values, Progress& progress);
  void write_checkpoint(int64_t done, const StreamState& stream);

  const Pretrain& o_;
  Corpus corpus_;
  DType dtype_;
  BertConfig config_;
  BertForPreTraining model_;
  Accumulate optimizer_;
  TextLoader loader_;
  int64_t start_ = 0;  // of this process's training, in steps
  StreamState stream_{o_.seed, 0, 0};
  double seconds_ = 0;
  nlohmann::json history_ = nlohmann::json::array();
};

nlohmann::json Pretraining::settings() const {
  return {{"model", o_.model},
          {"text", o_.text},
          {"vocabulary", config_.vocab_size},
          {"dtype", name(dtype_)},
          {"seq", o_.length},
          {"batch", o_.batch},
          {"accumulate", o_.accumulate},
          {"steps", o_.steps},
          {"lr", o_.lr},
          {"weight_decay", o_.weight_decay},
          {"whole_words", o_.whole_words},
          {"seed", o_.seed}};
}

void Pretraining::introduce() const {
  fmt::print(
      "BERT {} ({} parameters, {} tokens) in {} on {}: {} sequences of text, {} steps of {}\n",
      o_.model, model_.parameter_count(), config_.vocab_size, name(dtype_),
      default_device()->info().name, corpus_.train.size(), o_.steps, o_.batch);
}

void Pretraining::resume() {
  const auto position = CheckpointDirectory(o_.resume).load_latest(state());
  if (!position) return;
  const auto saved = nlohmann::json::parse(position->json);
  check(saved.at("settings") == settings(), "resume", "'{}' is of another run: {}, not {}",
        o_.resume, saved.at("settings").dump(), settings().dump());
  start_ = position->step;
  stream_ = {o_.seed, position->epoch, position->index};
  history_ = saved.at("history");
  if (!o_.quiet) fmt::print("going on after step {} of '{}'\n", start_, o_.resume);
}

void Pretraining::write_checkpoint(int64_t done, const StreamState& stream) {
  const nlohmann::json saved = {{"settings", settings()}, {"history", history_}};
  CheckpointDirectory(o_.resume).save(
      state(),
      {.step = done, .epoch = stream.epoch, .index = stream.position, .json = saved.dump()});
}

void Pretraining::run() {
  model_.train();
  Meter meter;
  Progress progress(o_.steps, o_.quiet);
  BatchStream<TextLoader> batches(loader_, stream_);
  int64_t saved = start_;
  for (int64_t i = start_; i < o_.steps; ++i) {
    step(batches.next(), meter);
    if (progress.due(i + 1)) note(i + 1, meter.read(), progress);
    // Between updates only: the gradients of a window are not part of a checkpoint.
    if (!o_.resume.empty() && i + 1 - saved >= o_.save_every && optimizer_.position() == 0) {
      write_checkpoint(i + 1, batches.state());
      saved = i + 1;
    }
  }
  optimizer_.flush();
  seconds_ = progress.seconds();
}

Tensor Pretraining::loss(const TextBatch& batch, Meter& meter) {
  std::vector<int32_t> at, tokens;  // of the masked tokens
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] < 0) continue;
    at.push_back(static_cast<int32_t>(i));
    tokens.push_back(batch.targets[i]);
  }
  const auto count = static_cast<int64_t>(at.size());
  const Tensor positions = tensor(at, {count}), targets = tensor(tokens, {count});
  const Autocast autocast(dtype_, dtype_ == DType::f16);
  Tensor predicted;
  const Tensor hidden = model_.forward(device_input(batch));
  Tensor loss = model_.token_loss(hidden, positions, targets, &predicted);
  meter.add(loss, predicted, targets);
  return loss;
}

void Pretraining::step(const TextBatch& batch, Meter& meter) {
  optimizer_.backward(loss(batch, meter), static_cast<float>(batch.predictions));
  optimizer_.step();
  default_device()->end_step();
}

void Pretraining::note(int64_t step, const Meter::Values& values, Progress& progress) {
  check<NumericsError>(
      std::isfinite(values.loss), "train",
      "the loss must be finite, got {} at step {}; lower --lr or use --dtype f32 ({})", values.loss,
      step, optimizer_.diagnose());
  const auto tokens = static_cast<double>((step - start_) * o_.batch * o_.length);
  const uint64_t memory = default_device()->memory_report().peak;
  progress.show(
      step, fmt::format("loss {:.3f}  accuracy {:.1f} %  {:.0f} tokens/s  {}", values.loss,
                        100 * values.accuracy, tokens / progress.seconds(), format_bytes(memory)));
  history_.push_back({{"step", step},
                      {"loss", values.loss},
                      {"accuracy", values.accuracy},
                      {"seconds", progress.seconds()}});
}

Meter::Values Pretraining::evaluate() {
  const NoGrad guard;
  model_.eval();
  TextLoaderOptions options = loader_options(o_);
  options.shuffle = false;
  TextLoader loader(corpus_.held_out, corpus_.tokenizer.vocabulary(), options);
  Meter meter;
  for (int64_t i = 0; i < loader.batches(); ++i) loss(loader.batch(0, i), meter);
  return meter.read();
}

void Pretraining::save() const {
  const ModelFolder to{o_.save};
  corpus_.tokenizer.vocabulary().save(to.vocabulary());
  write_bert_config(to.config(), config_, "BertForMaskedLM");
  save_model(to.weights(), model_);
}

nlohmann::json Pretraining::report(const Meter::Values& held_out,
                                   const MemoryReport& memory) const {
  nlohmann::json report = settings();
  const auto steps = static_cast<double>(o_.steps - start_);
  report.update({{"parameters", model_.parameter_count()},
                 {"train_sequences", corpus_.train.size()},
                 {"checkpoint_every", o_.checkpoint_every},
                 {"updates", optimizer_.updates()},
                 {"skipped_updates", optimizer_.skipped()},
                 {"loss_scale", optimizer_.loss_scale()},
                 {"train_seconds", seconds_},
                 {"step_seconds", seconds_ / steps},
                 {"held_out_loss", held_out.loss},
                 {"held_out_accuracy", held_out.accuracy},
                 {"history", history_},
                 {"device", device_json(memory)}});
  return report;
}

}  // namespace

void Pretrain::run() const {
  check_options(*this);
  device.open();
  manual_seed(seed);
  Pretraining training(*this);
  if (!resume.empty()) training.resume();
  if (!quiet) training.introduce();
  training.run();
  const MemoryReport memory = default_device()->memory_report();  // of training alone
  const Meter::Values held_out = training.evaluate();
  fmt::print("held-out text: loss {:.3f}, {:.1f} % of the masked tokens right\n", held_out.loss,
             100 * held_out.accuracy);
  training.save();
  fmt::print("saved in {}\n\n{}", save, memory.str());
  if (!report.empty()) write_json(report, training.report(held_out, memory));
}

}  // namespace rw
