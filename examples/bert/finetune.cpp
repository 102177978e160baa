#include <fmt/format.h>

#include <cmath>

#include "core/ops.h"
#include "data/prefetch.h"
#include "data/sst2.h"
#include "data/text_loader.h"
#include "examples/bert/batch.h"
#include "examples/bert/commands.h"
#include "examples/common/meter.h"
#include "examples/common/progress.h"
#include "io/bert.h"
#include "optim/accumulate.h"
#include "optim/adam.h"

namespace rw {

void Finetune::add_to(CLI::App& app) {
  app.add_option("--task", task, "folder with train.tsv and dev.tsv: columns sentence and label")
      ->required();
  app.add_option("--model", model, "folder of the pre-trained model")->capture_default_str();
  app.add_option("--seq", length, "most tokens per sentence")->capture_default_str();
  app.add_option("--batch", batch, "sentences per step")->capture_default_str();
  app.add_option("--accumulate", accumulate, "steps per update of the weights")
      ->capture_default_str();
  app.add_option("--checkpoint-every", checkpoint_every,
                 "layers per segment of recomputed activations; 0: keep all activations")
      ->capture_default_str();
  app.add_option("--epochs", epochs, "passes over the sentences")->capture_default_str();
  app.add_option("--steps", steps, "steps instead of epochs");
  app.add_option("--lr", lr, "highest learning rate; large models want less")
      ->capture_default_str();
  app.add_option("--weight-decay", weight_decay, "of matrices")->capture_default_str();
  app.add_option("--seed", seed, "of order, dropout and the new layer")->capture_default_str();
  app.add_option("--save", save, "folder for the classifier");
  app.add_option("--report", report, "write all figures of the run to this JSON file");
  app.add_flag("--quiet", quiet, "print the results only");
  device.add_to(app);
}

namespace {

class Finetuning {
 public:
  explicit Finetuning(const Finetune& options)
      : o_(options),
        dtype_(options.device.parsed_dtype()),
        tokenizer_(Vocabulary::load(ModelFolder{options.model}.vocabulary())),
        config_(read_bert_config(ModelFolder{options.model}.config())),
        train_data_(load_sst2(std::filesystem::path(options.task) / "train.tsv")),
        dev_data_(load_sst2(std::filesystem::path(options.task) / "dev.tsv")),
        train_(sentence_examples(train_data_, tokenizer_, o_.length)),
        dev_(sentence_examples(dev_data_, tokenizer_, o_.length)),
        model_(config_, train_data_.classes),
        optimizer_(AdamW(decay_groups(model_.parameters(), static_cast<float>(o_.weight_decay)),
                         {.lr = static_cast<float>(o_.lr)}),
                   o_.accumulate) {
    check(o_.length <= config_.max_position_embeddings, "options",
          "--seq must be at most the model's {}, got {}", config_.max_position_embeddings,
          o_.length);
    check(dev_data_.classes <= train_data_.classes, "finetune",
          "dev.tsv must have the classes of train.tsv, got {} and {}", dev_data_.classes,
          train_data_.classes);
    load_bert(ModelFolder{o_.model}.weights(), model_);
    model_.bert.set_checkpoint(o_.checkpoint_every);
  }

  void run();
  Meter::Values evaluate();  // on dev.tsv
  void save() const;
  nlohmann::json report(const Meter::Values& dev, const MemoryReport& memory) const;

 private:
  Tensor loss(const TextBatch& batch, Meter& meter);
  void set_up(int64_t steps);
  void note(int64_t step, const Meter::Values& values, Progress& progress);

  const Finetune& o_;
  DType dtype_;
  Tokenizer tokenizer_;
  BertConfig config_;
  SentenceDataset train_data_, dev_data_;
  std::vector<TextExample> train_, dev_;
  BertForSequenceClassification model_;
  Accumulate optimizer_;
  double seconds_ = 0;
  nlohmann::json history_ = nlohmann::json::array();
};

void Finetuning::set_up(int64_t steps) {
  const auto updates = static_cast<uint32_t>((steps + o_.accumulate - 1) / o_.accumulate);
  optimizer_.set_schedule(Schedule::linear(updates, updates / 10));
  optimizer_.set_max_norm(1);
  if (dtype_ == DType::f16) optimizer_.set_scaler(LossScaler::dynamic());
  if (!o_.quiet)
    fmt::print(
        "classifier of {} classes ({} parameters) in {} on {}: {} sentences, {} steps of {}\n",
        train_data_.classes, model_.parameter_count(), name(dtype_), default_device()->info().name,
        train_.size(), steps, o_.batch);
}

void Finetuning::run() {
  TextLoader loader(train_, tokenizer_.vocabulary(),
                    {.batch_size = o_.batch, .bucket_batches = 50, .seed = o_.seed});
  const int64_t steps = o_.steps ? o_.steps : o_.epochs * loader.batches();
  set_up(steps);
  model_.train();
  Meter meter;
  Progress progress(steps, o_.quiet);
  BatchStream<TextLoader> batches(loader);
  for (int64_t i = 0; i < steps; ++i) {
    const TextBatch batch = batches.next();
    optimizer_.backward(loss(batch, meter), static_cast<float>(batch.rows));
    optimizer_.step();
    default_device()->end_step();
    if (progress.due(i + 1)) note(i + 1, meter.read(), progress);
  }
  optimizer_.flush();
  seconds_ = progress.seconds();
}

Tensor Finetuning::loss(const TextBatch& batch, Meter& meter) {
  const Autocast autocast(dtype_, dtype_ == DType::f16);
  const Tensor labels = tensor(batch.labels, {batch.rows});
  const Tensor logits = model_.forward(device_input(batch));
  Tensor loss = cross_entropy(logits, labels);
  meter.add(loss, argmax(logits), labels);
  return loss;
}

void Finetuning::note(int64_t step, const Meter::Values& values, Progress& progress) {
  check<NumericsError>(
      std::isfinite(values.loss), "train",
      "the loss must be finite, got {} at step {}; lower --lr or use --dtype f32 ({})", values.loss,
      step, optimizer_.diagnose());
  progress.show(step, fmt::format("loss {:.3f}  accuracy {:.1f} %  {:.0f} sentences/s", values.loss,
                                  100 * values.accuracy,
                                  static_cast<double>(step * o_.batch) / progress.seconds()));
  history_.push_back({{"step", step},
                      {"loss", values.loss},
                      {"accuracy", values.accuracy},
                      {"seconds", progress.seconds()}});
}

Meter::Values Finetuning::evaluate() {
  const NoGrad guard;
  model_.eval();
  TextLoader loader(dev_, tokenizer_.vocabulary(), {.batch_size = o_.batch, .shuffle = false});
  Meter meter;
  for (int64_t i = 0; i < loader.batches(); ++i) loss(loader.batch(0, i), meter);
  return meter.read();
}

void Finetuning::save() const {
  const ModelFolder to{o_.save};
  tokenizer_.vocabulary().save(to.vocabulary());
  write_bert_config(to.config(), config_, "BertForSequenceClassification");
  save_model(to.weights(), model_);
}

nlohmann::json Finetuning::report(const Meter::Values& dev, const MemoryReport& memory) const {
  return {{"task", o_.task},
          {"model", o_.model},
          {"dtype", name(dtype_)},
          {"seq", o_.length},
          {"batch", o_.batch},
          {"accumulate", o_.accumulate},
          {"lr", o_.lr},
          {"weight_decay", o_.weight_decay},
          {"seed", o_.seed},
          {"checkpoint_every", o_.checkpoint_every},
          {"updates", optimizer_.updates()},
          {"skipped_updates", optimizer_.skipped()},
          {"train_seconds", seconds_},
          {"dev_loss", dev.loss},
          {"dev_accuracy", dev.accuracy},
          {"history", history_},
          {"device", device_json(memory)}};
}

}  // namespace

void Finetune::run() const {
  check(length >= 8 && batch > 0 && accumulate > 0 && epochs > 0 && steps >= 0, "options",
        "--seq must be at least 8, and --batch, --accumulate, --epochs and --steps positive");
  check(checkpoint_every >= 0, "options", "--checkpoint-every must not be negative, got {}",
        checkpoint_every);
  check(std::isfinite(lr) && lr >= 0, "options", "--lr must be a number >= 0, got {}", lr);
  check<FileError>(std::filesystem::exists(ModelFolder{model}.weights()), "finetune",
                   "there is no model in '{}'; pre-train one first", model);
  device.open();
  manual_seed(seed);
  Finetuning training(*this);
  training.run();
  const MemoryReport memory = default_device()->memory_report();  // of training alone
  const Meter::Values dev = training.evaluate();
  fmt::print("dev accuracy {:.2f} %, loss {:.3f}\n", 100 * dev.accuracy, dev.loss);
  if (!save.empty()) training.save();
  fmt::print("\n{}", memory.str());
  if (!report.empty()) write_json(report, training.report(dev, memory));
}

}  // namespace rw
