#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "apps/lora/demo.h"
#include "apps/lora/options.h"
#include "backends/open.h"
#include "core/base/rng.h"
#include "core/files/cache.h"
#include "core/memory/default_device.h"
#include "data/base/files.h"
#include "data/chat/chat_format.h"
#include "data/content_hash.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "trainer/language/language_model.h"
#include "trainer/language/text_generation.h"
#include "trainer/program/shared_options.h"
#include "trainer/trainer.h"

namespace rw {

namespace {

// The examples to train and to validate with, and the chat format of the model, if it has one.
struct InstructionData {
  BpeTokenizer tokenizer;
  std::optional<ChatFormat> chat;
  Instructions read;
  std::vector<InstructionExample> validation;

  InstructionData(const LoraTrain& o, BpeTokenizer of_model) : tokenizer(std::move(of_model)) {
    if (!o.chat_format.empty() || !tokenizer.parts().chat_template.empty())
      chat.emplace(tokenizer, o.chat_format);
    read = examples_of(o, o.data);
    validation = o.validation.empty() ? split_off(read.examples, o.test_share, o.seed)
                                      : examples_of(o, o.validation).examples;
  }

  void check_tokens(int64_t vocab_size) const {
    for (const auto* part : {&read.examples, &validation})
      for (const InstructionExample& example : *part)
        rw::check_tokens(example.tokens, tokenizer, vocab_size);
  }
  std::string str() const {
    std::string text = fmt::format("{} examples to train on and {} to validate with",
                                   read.examples.size(), validation.size());
    if (read.cut > 0) text += fmt::format("; {} lost their end, see --seq", read.cut);
    if (read.dropped > 0)
      text += fmt::format("; {} are left out, whose answers begin too late", read.dropped);
    return text;
  }

 private:
  Instructions examples_of(const LoraTrain& o, const std::string& file) const {
    return read_instructions(
        std::filesystem::path(file), tokenizer, chat ? &*chat : nullptr,
        {.longest = o.length + 1, .all_tokens = o.all_tokens, .refuse_long = o.refuse_long});
  }
};

class LoraTraining : public Trainer<LoraTask, PackedExamples> {
 public:
  LoraTraining(const LoraTrain& options, const LoraRecipe& recipe, const InstructionData& data,
               PlannedRun& run)
      : Trainer(
            options, run, recipe,
            std::make_unique<PackedExamples>(data.read.examples, options.rows(options.batch, true)),
            run_settings(*options.command, options.rate(),
                         {content_hash(std::span(data.read.examples)),
                          content_hash(std::span(data.validation))})),
        o_(options),
        data_(data) {}

  // Writes the model with the adapters in its weights, which has no adapters any more. Quantised
  // weights become floats for it in the host's memory, and the adapter is the one that was saved.
  void merge() {
    const auto whole = gather_parameters(steps().parallel.get());
    if (!is_first_rank()) return;
    if (const DecoderFiles& base = *o_.files(); base.is_quantised()) {
      const DeviceScope host(Device::create(open_backend("cpu")));
      const auto merged = LanguageModel::open_merged(base, o_.save, o_.tokenizer);
      save_language_model(o_.merge, *merged.model, merged.tokenizer, "f16");
    } else {
      merge_lora(steps().model);
      save_language_model(o_.merge, steps().model, data_.tokenizer);
    }
    fmt::print("merged in {}\n", o_.merge);
  }

 protected:
  void load(LoraSteps&) override {
    is_before_ = true;
    before_ = Trainer::evaluate(o_.quiet);
    sample();
    is_before_ = false;
  }
  std::string title() const override {
    int64_t trained = 0;
    for (const NamedLora& lora : lora_adapters(steps().model))
      for (const Tensor& parameter : lora.adapter->parameters()) trained += parameter.numel();
    return fmt::format("adapters of rank {} ({} parameters) of the model of {} ({} tokens)",
                       o_.adapter.rank, trained, o_.model, steps().model.config().vocab_size);
  }
  std::string steps_text() const override {
    return fmt::format("of {} rows of {} tokens; {}", batch(), o_.length, data_.str());
  }
  std::unique_ptr<PackedExamples> testing(int64_t batch) override {
    return std::make_unique<PackedExamples>(data_.validation, o_.rows(batch, false));
  }
  std::string result(const char* whose, const Meter::Values& values) const override {
    return fmt::format("validation{}: loss {}{:.4f}, perplexity {:.2f}",
                       is_before_ ? " before training" : "", whose, values.loss,
                       std::exp(values.loss));
  }
  nlohmann::json evaluate(bool quiet) override {
    nlohmann::json found = Trainer::evaluate(quiet);
    if (!quiet) sample();
    return found;
  }
  void save(bool is_average) override {
    if (!o_.saves()) return;
    save_adapter(weights_path(o_.save, is_average), steps().model, {.base_model = o_.model});
    if (!is_average) fmt::print("saved in {}\n", o_.save);
  }
  void add_figures(nlohmann::json& report) const override {
    report.update({{"examples", data_.read.examples.size()},
                   {"validation_examples", data_.validation.size()},
                   {"examples_cut", data_.read.cut},
                   {"examples_dropped", data_.read.dropped},
                   {"before", before_},
                   {"checkpoint_every", o_.checkpoint_every}});
  }

 private:
  // The tokens of a prompt: of --prompt, or of the first example of the validation that has one.
  std::vector<int32_t> prompt() const {
    if (!o_.prompt.empty()) {
      if (!data_.chat) return data_.tokenizer.encode(o_.prompt, true, true, false);
      const ChatMessage message{"user", o_.prompt};
      return data_.tokenizer.encode(data_.chat->render({&message, 1}));
    }
    const auto most = steps().model.longest() / 2;
    for (const InstructionExample& example : data_.validation) {
      const auto answer = std::ranges::find(example.counts, 1) - example.counts.begin();
      if (answer > 0 && answer < most)
        return {example.tokens.begin(), example.tokens.begin() + answer};
    }
    return {};
  }
  void sample() {
    const std::vector<int32_t> ids = prompt();
    if (o_.quiet || ids.empty() || !is_first_rank()) return;
    TextOptions options{.generate = {.max_new_tokens = 60, .sample = {.temperature = 0}}};
    if (data_.chat)
      if (const auto end = data_.tokenizer.id(data_.chat->end_of_turn()))
        options.end_tokens.push_back(*end);
    const GeneratedText answer = continue_text(steps().model, data_.tokenizer, ids, options);
    fmt::print("an answer {} training:\n  {}\n  {}\n", is_before_ ? "before" : "after",
               indented(without_end(data_.tokenizer.decode(ids, true))),
               indented(without_end(answer.text)));
  }
  static std::string without_end(std::string text) {
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  const LoraTrain& o_;
  const InstructionData& data_;
  bool is_before_ = false;
  nlohmann::json before_;
};

}  // namespace

// A run without a model of its user's takes the one of the demonstration. Models are computed as
// their files say.
void LoraTrain::complete() {
  is_demo_ = model.empty() && config.empty();
  check(is_demo_ == data.empty() || (planning.plan && data.empty()), "options",
        "--model, the model to fine-tune, and --data, the examples, go together, got only {}",
        is_demo_ ? "--data" : "--model");
  if (is_demo_ && command->count("--seq") == 0) length = 128;
  if (!model.empty()) files_ = std::make_shared<DecoderFiles>(model);
  if (device.dtype.empty())
    device.dtype = name(files_ ? files_->working_dtype() : is_demo_ ? DType::f32 : DType::f16);
}

LoraRecipe LoraTrain::base() const {
  LoraRecipe made = {.base = files_};
  if (!config.empty()) {
    made.config = DecoderConfig::preset(config);
    made.types = type == "nf4" ? nf4_types(made.config)
                               : decoder_types(made.config,
                                               static_cast<GgufType>(find_gguf_type(type)->number));
  } else if (files_) {
    made.config = files_->config();
    made.types = files_->types();
  } else {
    made.config = demo_config();
  }
  return made;
}

LoraRecipe LoraTrain::recipe(LoraRecipe made, int64_t rows) {
  made.adapter = adapter;
  made.length = length;
  made.numerics = numerics;
  made.average = average;
  check(length <= made.config.max_position_embeddings, "options",
        "--seq must be at most the model's {} positions, got {}",
        made.config.max_position_embeddings, length);
  chosen = rw::recipe({.kind = TrainingWork::Kind::adapters,
                       .is_loaded = true,
                       .parameters = made.config.matrix_elements(),
                       .batch = std::min(batch, std::max<int64_t>(1, rows)) * accumulate,
                       .samples = rows});
  if (command->count("--steps") == 0 && command->count("--epochs") == 0) epochs = chosen.passes;
  made.update = update.with(rate(), weight_decay);
  return made;
}

// Matrices that have the bytes of the file, and that nobody writes or saves, may stay there.
std::string LoraTrain::not_in_file(const LoraRecipe& made) const {
  const bool is_quantised = files_ && files_->is_quantised();
  if (!merge.empty() && !is_quantised) return "--merge writes to them";
  const bool is_nf4 = files_ ? !files_->gguf() && is_quantised : type == "nf4";
  if (is_nf4) return "those in NF4 lie in several tensors of their files";
  const DType dtype = device.parsed_dtype();
  const bool are_same =
      !files_ ? std::ranges::all_of(
                    made.types, [&](const auto& of) { return of.second || type == name(dtype); })
              : files_->holds_matrices_as(dtype);
  return are_same ? "" : fmt::format("they become {} on their way; see --dtype", name(dtype));
}

TrainingProgram LoraTrain::program(const LoraRecipe& made) const {
  const std::string why_not = not_in_file(made);
  check(offload != "file" || why_not.empty(), "options",
        "--offload file leaves the weights in their file as they are: {}", why_not);
  return {.title = fmt::format("adapters of {}, rows of {}",
                               !config.empty() ? config + " in " + type
                               : is_demo_      ? "the model of the demonstration"
                                               : model,
                               length),
          .samples = "rows",
          .make = make_steps<LoraTask>(made),
          .settings = settings(),
          .saves = saves(),
          .frozen_file = why_not.empty() ? std::optional(model) : std::nullopt,
          .estimator_states = update.estimator_states(),
          .words = command_line_words(),
          .longest = made.config.max_position_embeddings};
}

void LoraTrain::run() {
  complete();
  ranks.share_out(accumulate);
  check_numbers();
  if (planning.plan) return run_plan(program(recipe(base(), 0)), planning, device);
  if (saves() && save == default_adapter_folder()) {
    cache_directory();  // it must be this user's alone
    keep_earlier(*command, (std::filesystem::path(save) / "adapter_config.json").string());
  }
  device.open();
  if (is_demo_) {
    const DemoFiles files =
        make_demo(cache_directory() / "lora-demo", [&](const std::string& text) {
          if (!quiet) fmt::print("{}\n", text);
        });
    model = files.model.string();
    files_ = std::make_shared<DecoderFiles>(files.model);
    data = files.data.string();
    default_device()->reset_peak();  // that of its training is not one of this run
  }
  train();
}

void LoraTrain::train() {
  manual_seed(seed);
  if (!resume.empty()) frozen_base = files_->fingerprint();
  const LoraRecipe shape = base();
  InstructionData examples(*this, read_tokenizer(*files_, tokenizer));
  examples.check_tokens(shape.config.vocab_size);
  const PackedExamples rows_to_train(examples.read.examples, rows(batch, true));
  batch = std::min(batch, rows_to_train.rows());
  const LoraRecipe made = recipe(shape, rows_to_train.rows());
  TrainingProgram planned = program(made);
  planned.steps = batches_of(rows_to_train.rows());
  planned.evaluation =
      own_batches_of(PackedExamples(examples.validation, rows(batch, false)).rows());
  per_sample = length;
  fit_memory(planned);
  run_planned(std::move(planned), planning, [&](PlannedRun& run) {
    LoraTraining training(*this, made, examples, run);
    training.run();
    if (!merge.empty()) training.merge();
  });
}

}  // namespace rw
