#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/bert/commands.h"
#include "apps/bert/shapes.h"
#include "apps/common/training_loop.h"
#include "core/base/rng.h"
#include "data/base/files.h"
#include "data/base/prefetch.h"
#include "data/content_hash.h"
#include "data/text/sentences.h"
#include "data/text/text_loader.h"
#include "io/models/bert.h"

namespace rw {

void Finetune::add_to(CLI::App& app) {
  command = &app;
  app.add_option(
      "--task", task,
      "folder with train.tsv and dev.tsv (or dev_matched.tsv): columns sentence and label, "
      "or sentence1, sentence2 and label for pairs; labels are numbers or words");
  app.add_option("--model", model, "folder of the pre-trained model")->capture_default_str();
  app.add_option("--seq", length, "most tokens per sentence")->capture_default_str();
  app.add_option("--batch", batch, "sentences per step")->capture_default_str();
  app.add_option("--accumulate", accumulate, "steps per update of the weights")
      ->capture_default_str();
  app.add_option("--checkpoint-every", checkpoint_every,
                 "layers per segment of recomputed activations; 0: keep all activations")
      ->capture_default_str();
  app.add_flag("--host-boundaries", host_boundaries,
               "what lies between segments waits in host memory");
  state.add_to(app);
  app.add_option("--epochs", epochs, "passes over the sentences")->capture_default_str();
  app.add_option("--steps", steps, "steps instead of epochs");
  lr.add_to(app, "highest learning rate; large models want less");
  app.add_option("--weight-decay", weight_decay, "of matrices")->capture_default_str();
  app.add_option("--seed", seed, "of order, dropout and the new layer")->capture_default_str();
  app.add_option("--save", save, "folder for the classifier");
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
  app.add_option("--classes", classes, "with --plan: classes of the sentences")
      ->needs("--plan")
      ->capture_default_str();
}

namespace {

// The sentences, and the tokens they are made of.
struct Sentences {
  Tokenizer tokenizer;
  SentenceDataset train_data, dev_data;
  std::vector<TextExample> train, dev;

  explicit Sentences(const Finetune& o)
      : tokenizer(ModelFolder{o.model}.load_vocabulary()),
        train_data(load_sentences(std::filesystem::path(o.task) / "train.tsv")),
        dev_data(load_sentences(dev_file(o.task), train_data.class_names)),
        train(sentence_examples(train_data, tokenizer, o.length)),
        dev(sentence_examples(dev_data, tokenizer, o.length)) {
    check<FileError>(classes() > 1 && dev_data.labels.size() == dev_data.size(), "finetune",
                     "train.tsv and dev.tsv in '{}' must have labels, of 2 classes or more; got {} "
                     "classes and {} labels to test with",
                     o.task, classes(), dev_data.labels.size());
    check<FileError>(train_data.has_pairs() == dev_data.has_pairs(), "finetune",
                     "train.tsv and dev.tsv in '{}' must both have pairs or both sentences",
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
  // MNLI has two; the one of the genres that are trained on is taken.
  static std::filesystem::path dev_file(const std::filesystem::path& task) {
    const std::filesystem::path matched = task / "dev_matched.tsv";
    const bool is_there = std::filesystem::exists(task / "dev.tsv");
    return !is_there && std::filesystem::exists(matched) ? matched : task / "dev.tsv";
  }
};

class Finetuning {
 public:
  Finetuning(const Finetune& options, const Sentences& sentences, const BertRecipe& recipe,
             ProgramRun& run)
      : o_(options),
        sentences_(sentences),
        loader_(sentences.train_loader(options, options.batch)),
        total_(o_.steps ? o_.steps : o_.epochs * loader_.batches()),
        batch_(run.settings().batch),
        steps_(recipe, run.settings()),
        loop_(loop_options(), steps_.model, *steps_.optimizer, steps_.meter, run, &steps_.numerics,
              steps_.average.get()) {
    {
      const WholeParameters whole(steps_.parallel.get());
      load_bert(ModelFolder{o_.model}.weights(), steps_.model);
    }
    const auto updates = static_cast<uint32_t>((total_ + o_.accumulate - 1) / o_.accumulate);
    steps_.optimizer->set_schedule(Schedule::linear(updates, updates / 10));
  }

  void run();             // from the newest snapshot on, if there is one
  Evaluation evaluate();  // on dev.tsv
  static void print(const Evaluation& evaluation);
  void save() const;
  nlohmann::json report() const;  // of the training alone

 private:
  LoopOptions loop_options() const;
  void introduce() const;

  const Finetune& o_;
  const Sentences& sentences_;
  TextLoader loader_;
  const int64_t total_;  // steps
  const int64_t batch_;
  FinetuneSteps steps_;
  TrainingLoop loop_;
};

LoopOptions Finetuning::loop_options() const {
  return {.steps = total_,
          .batches = loader_.batches(),
          .samples = o_.batch,
          .unit = "sentences",
          .quiet = o_.quiet,
          .snapshots = o_.resume,
          .steps_per_snapshot = o_.snapshot_every,
          .parallel = steps_.parallel.get(),
          .restart = o_.restart,
          .settings = run_settings(*o_.command, o_.lr.rate(o_.batch, o_.accumulate),
                                   {content_hash(sentences_.train), content_hash(sentences_.dev)})};
}

void Finetuning::introduce() const {
  if (o_.quiet) return;
  fmt::print("classifier of {} classes ({} parameters) in {} on {}{}: {} {}, {} steps of {}{}\n",
             sentences_.classes(), steps_.model.parameter_count(), o_.device.dtype,
             default_device()->info().name, of_ranks(), sentences_.train.size(),
             sentences_.train_data.has_pairs() ? "pairs" : "sentences", total_, o_.batch,
             o_.lr.str(o_.batch, o_.accumulate));
}

void Finetuning::run() {
  loop_.resume();
  introduce();
  RankStream<TextLoader> stream(loader_, loop_.start());
  loop_.run([&](int64_t) { steps_.step(stream.next()); },
            [this] {
              const Evaluation found = evaluate();
              if (!o_.quiet) print(found);
              return found.json("dev_");
            });
}

Evaluation Finetuning::evaluate() {
  return evaluate_both(steps_, [&] { return sentences_.dev_loader(batch_); });
}

void Finetuning::print(const Evaluation& evaluation) {
  evaluation.print([](const char* whose, const Meter::Values& values) {
    fmt::print("dev accuracy {}{:.2f} %, loss {:.3f}\n", whose, 100 * values.accuracy, values.loss);
  });
}

void Finetuning::save() const {
  if (o_.save.empty()) return;
  const WholeParameters whole(steps_.parallel.get());
  if (!is_first_rank()) return;
  const ModelFolder to{o_.save};
  sentences_.tokenizer.vocabulary().save(to.vocabulary());
  write_bert_config(to.config(), steps_.model.bert.config(), "BertForSequenceClassification",
                    sentences_.train_data.class_names);
  save_model(to.weights(), steps_.model);
  if (steps_.average)
    at_average(*steps_.average,
               [&] { save_model(average_path(to.weights().string()), steps_.model); });
  default_device()->end_step();
}

nlohmann::json Finetuning::report() const {
  nlohmann::json report = loop_.json();
  report.update({{"checkpoint_every", o_.checkpoint_every},
                 {"classes", sentences_.train_data.class_names},
                 {"device", device_json()}});
  return report;
}

void check_options(const Finetune& o) {
  o.numerics.scaler(o.device.parsed_dtype());
  o.average.check_numbers();
  check(
      o.length >= 8 && o.batch > 0 && o.accumulate > 0 && o.epochs > 0 && o.steps >= 0 &&
          o.snapshot_every > 0,
      "options",
      "--seq must be at least 8, and --batch, --accumulate, --epochs, --steps and --snapshot-every "
      "positive");
  check(o.checkpoint_every >= 0, "options", "--checkpoint-every must not be negative, got {}",
        o.checkpoint_every);
  o.lr.rate(o.batch, o.accumulate);  // checks
  check(o.classes > 1, "options", "--classes must be at least 2, got {}", o.classes);
  check(o.planning.plan || !o.task.empty(), "options", "training needs sentences: --task DIR");
}

void finetune(const Finetune& options, const Sentences& sentences, const BertRecipe& recipe,
              ProgramRun& run) {
  Finetuning training(options, sentences, recipe, run);
  training.run();
  training.save();
  const ReportFile file(options.report);
  nlohmann::json report = training.report();
  file.write_so_far(report);
  const Evaluation dev = training.evaluate();
  Finetuning::print(dev);
  const RunAccount account = run.account();
  fmt::print("\n{}", account.str());
  report.update(dev.json("dev_"));
  report["device"] = account_json(account);
  file.write(report);
}

}  // namespace

BertRecipe Finetune::recipe(const BertConfig& config) const {
  check(padded_length(length) <= config.max_position_embeddings, "options",
        "--seq must be at most the model's {}, got {}", config.max_position_embeddings, length);
  BertRecipe recipe = {.config = config,
                       .length = padded_length(length),
                       .classes = classes,
                       .lr = static_cast<float>(lr.rate(batch, accumulate)),
                       .weight_decay = static_cast<float>(weight_decay),
                       .numerics = numerics,
                       .average = average};
  state.apply(recipe);
  return recipe;
}

TrainingProgram Finetune::program(const BertRecipe& recipe, int64_t rows) const {
  return {.title = fmt::format("classifier of {} classes, {} tokens per sentence", recipe.classes,
                               recipe.length),
          .samples = "sentences",
          .make = [recipe](
                      const StepSettings& s) { return std::make_unique<FinetuneSteps>(recipe, s); },
          .settings = ranks.of_rank({.dtype = device.parsed_dtype(),
                                     .batch = rows,
                                     .accumulate = accumulate,
                                     .checkpoint = checkpoint_every > 0 ? "block" : "none",
                                     .checkpoint_every = checkpoint_every,
                                     .host_boundaries = host_boundaries}),
          .outline = {.loads = true, .saves = !save.empty()},
          .estimator_states = state.estimator_states(),
          .words = command_line_words("--checkpoint-every 1")};
}

void Finetune::run() {
  ranks.share_out(accumulate);
  check_options(*this);
  const ModelFolder from{model};
  if (planning.plan) {
    const bool there = std::filesystem::exists(from.config());
    const BertConfig config = there ? read_bert_config(from.config()) : BertConfig::preset(model);
    return run_plan(program(recipe(config), batch), planning, device, report);
  }
  if (model == default_model_folder()) cache_directory();  // it must be this user's alone
  check<FileError>(std::filesystem::exists(from.weights()), "finetune",
                   "there is no model in '{}'; pre-train one first", model);
  device.open();
  manual_seed(seed);
  const Sentences sentences(*this);
  BertRecipe made = recipe(from.load_config(sentences.tokenizer.vocabulary()));
  made.classes = sentences.classes();
  check<FileError>(!sentences.train_data.has_pairs() || made.config.type_vocab_size > 1, "finetune",
                   "the model in '{}' must have 2 token types for pairs, got a type_vocab_size of "
                   "{}; pre-train one that has",
                   model, made.config.type_vocab_size);
  const int64_t rows = std::min(batch, static_cast<int64_t>(sentences.train.size()));
  // By the size of batches; searches ask for the same ones again and again.
  auto shapes = [&, known = std::map<int64_t, std::vector<BatchShape>>()](
                    int64_t size) mutable -> const std::vector<BatchShape>& {
    const auto [found, is_new] = known.try_emplace(size);
    if (is_new) {
      TextLoader loader = sentences.train_loader(*this, size);
      found->second = largest_shapes(loader, steps ? steps : epochs * loader.batches());
    }
    return found->second;
  };
  made.length = 0;
  for (const BatchShape& shape : shapes(rows))
    if (shape.rows == rows) made.length = std::max(made.length, shape.length);
  if (made.length == 0) made.length = shapes(rows).front().length;  // none of the batches is full
  TrainingProgram planned = program(made, rows);
  planned.outline.steps = shapes;
  planned.outline.evaluation = [&](int64_t size) {
    return largest_shapes(sentences.dev_loader(size), 0);
  };
  ProgramRun run(std::move(planned), planning);
  run.guard([&] { finetune(*this, sentences, made, run); });
}

}  // namespace rw
