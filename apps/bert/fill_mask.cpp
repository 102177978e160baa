#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/bert/commands.h"
#include "data/base/files.h"
#include "data/text/tokenizer.h"
#include "io/models/bert.h"
#include "ops/autocast.h"
#include "trainer/program/ranking.h"
#include "trainer/program/shared_options.h"

namespace rw {

namespace {

// The forward pass that fills masks, without training.
class FillMaskSteps : public ModelSteps {
 public:
  FillMaskSteps(const BertConfig& config, const StepSettings& settings)
      : model(config, false), settings_(settings) {}

  // Returns scores of the vocabulary for the tokens at `positions` of one text: [positions,
  // vocabulary].
  std::vector<float> scores(const std::vector<int32_t>& ids,
                            const std::vector<int32_t>& positions) {
    return scores(tensor(ids, {1, static_cast<int64_t>(ids.size())}),
                  tensor(positions, {static_cast<int64_t>(positions.size())}));
  }

  void dry_evaluation(const BatchShape& shape) override {  // rows are positions
    model.eval();
    scores(empty({1, shape.length}, DType::i32), empty({shape.rows}, DType::i32));
    default_device()->end_step();
  }
  Module& trained() override { return model; }

  BertForPreTraining model;

 private:
  std::vector<float> scores(const Tensor& ids, const Tensor& positions) {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    return model.token_logits(model.forward({ids}), positions).to_vector();
  }

  const StepSettings settings_;
};

// Prints the most likely tokens for each [MASK] of a text.
struct FillMask {
  DeviceOptions device;
  std::string text, model = default_model_folder();
  int64_t top = 5;

  void add_to(CLI::App& app);
  void run() const;
  // Returns the program for a text of this many tokens, of which this many are masked.
  TrainingProgram program(const BertConfig& config, size_t tokens, size_t masks) const;
};

}  // namespace

void FillMask::add_to(CLI::App& app) {
  app.add_option("text", text, "a text with [MASK] in it")->required();
  shared_option(app, "--model", model, "its folder")->capture_default_str();
  shared_option(app, "--top", top, "tokens of a mask")->capture_default_str();
  device.add_to(app);
}

void FillMask::run() const {
  check(top > 0, "options", "--top must be positive, got {}", top);
  // The folder must belong to this user alone.
  if (model == default_model_folder()) cache_directory();
  const ModelFolder from{model};
  check<FileError>(std::filesystem::exists(from.weights()), "fill-mask",
                   "there is no model in '{}'; pre-train one first", model);
  const Tokenizer tokenizer = from.load_tokenizer();
  const BertConfig config = from.load_config(tokenizer.vocabulary());
  const Encoding encoding = tokenizer.encode(text, config.max_position_embeddings);
  std::vector<int32_t> masks;
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    if (encoding.ids[i] == tokenizer.vocabulary().mask) masks.push_back(static_cast<int32_t>(i));
  check(!masks.empty(), "fill-mask", "the text must have a [MASK] in its first {} tokens",
        config.max_position_embeddings);

  device.open();
  const PlanningOptions plain;
  run_planned(program(config, encoding.ids.size(), masks.size()), plain, [&](PlannedRun& run) {
    const NoGrad guard;
    FillMaskSteps steps(config, run.settings());
    load_bert(from.weights(), steps.model);
    steps.model.eval();
    const std::vector<float> scores = steps.scores(encoding.ids, masks);
    const size_t tokens = scores.size() / masks.size();
    for (size_t i = 0; i < masks.size(); ++i) {
      if (i > 0) fmt::print("\n");
      for (const auto& [index, probability] :
           best_of({scores.data() + i * tokens, tokens}, static_cast<size_t>(top), "fill-mask"))
        fmt::print("{:5.1f} %  {}\n", 100 * probability,
                   tokenizer.vocabulary().token(static_cast<int64_t>(index)));
    }
  });
}

TrainingProgram FillMask::program(const BertConfig& config, size_t tokens, size_t masks) const {
  const BatchShape text{.rows = static_cast<int64_t>(masks),
                        .length = static_cast<int64_t>(tokens)};
  return {.title = fmt::format("BERT with {} tokens, a text of {}", config.vocab_size, tokens),
          .samples = "texts",
          .make = [config](
                      const StepSettings& s) { return std::make_unique<FillMaskSteps>(config, s); },
          .settings = {.dtype = device.parsed_dtype()},
          .trains = false,
          .loads = true,
          .evaluation = [text](int64_t) { return std::vector{text}; },
          .words = command_line_words()};
}

std::function<void()> add_fill_mask(CLI::App& app) {
  return add_command<FillMask>(app);
}

}  // namespace rw
