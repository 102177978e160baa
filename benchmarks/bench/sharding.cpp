// The memory that training large models on several devices takes of each of them, by dry runs of
// every rank: the largest batches in so much memory for each way of sharding, and if none fits, the
// need of one sample. It writes tables, and runs no kernel.
#include <fmt/format.h>

#include <algorithm>

#include "benchmarks/bench/bench.h"
#include "benchmarks/memory/measure.h"
#include "dist/step_ranks.h"
#include "models/bert.h"
#include "models/gpt.h"
#include "ops/autocast.h"
#include "optim/adam.h"
#include "planner/forecast/planner.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

// A model's loss for so many texts.
template <class Model>
using TextLoss = Tensor (*)(Model& model, int64_t texts);

template <class Model, class Config>
class Steps : public TrainingSteps {
 public:
  Steps(const Config& config, TextLoss<Model> loss_of, const StepSettings& settings)
      : settings_(settings),
        loss_of_(loss_of),
        ranks_(settings),
        model_(config),
        optimizer_(AdamW(ranks_.placed(decay_groups(model_.parameters(), 0.01f))),
                   settings.accumulate) {
    optimizer_.set_scaler(default_scaler(settings.dtype));
    optimizer_.set_max_norm(1);
    parallel_ = ranks_.share(optimizer_);
  }

  void dry_step(const BatchShape& shape) override {
    Tensor loss;
    {
      const Autocast half(settings_.dtype, settings_.dtype != DType::f32);
      loss = loss_of_(model_, shape.rows_or(settings_.batch));
    }
    optimizer_.backward(loss);
    optimizer_.step();
    optimizer_.zero_grad();
  }

 private:
  const StepSettings settings_;
  const TextLoss<Model> loss_of_;
  StepRanks ranks_;
  Model model_;
  Accumulate optimizer_;
  std::unique_ptr<DataParallel> parallel_;
};

Tensor fill_masks(BertForPreTraining& model, int64_t texts) {
  constexpr int64_t tokens = 512, masked = 76;
  const Tensor hidden = model.forward(BertInput{.ids = empty({texts, tokens}, DType::i32)});
  return model.token_loss(hidden, empty({texts * masked}, DType::i32),
                          empty({texts * masked}, DType::i32));
}

Tensor continue_texts(GptLMHeadModel& model, int64_t texts) {
  constexpr int64_t tokens = 2048;
  return model.loss(empty({texts, tokens}, DType::i32), empty({texts, tokens}, DType::i32));
}

template <class Model, class Config>
MakeSteps sharded_steps(const Config& config, TextLoss<Model> loss_of) {
  return [=](const StepSettings& settings) {
    return std::make_unique<Steps<Model, Config>>(config, loss_of, settings);
  };
}

// The settings use f16 activations and a segment for each layer.
StepSettings settings_of(int ranks, const std::string& shard) {
  return {.dtype = DType::f16, .batch = 1, .checkpoint = "block", .ranks = ranks, .shard = shard};
}

// The largest batch on the rank that needs most, and what that one and the one that needs least
// have with it; with one sample where that is too much.
std::string cell(const Planner& planner, StepSettings settings, uint64_t bytes) {
  const auto needs = [&](int rank) {
    settings.rank = rank;
    return planner.peak(settings);
  };
  int least = 0, most = 0;
  if (settings.shard != "none") {  // without, all are alike
    std::vector<uint64_t> peaks;
    for (int rank = 0; rank < settings.ranks; ++rank) peaks.push_back(needs(rank));
    const auto [low, high] = std::ranges::minmax_element(peaks);
    least = static_cast<int>(low - peaks.begin());
    most = static_cast<int>(high - peaks.begin());
  }
  settings.rank = most;
  settings.batch = planner.largest_batch(settings, bytes);
  const bool fits = settings.batch > 0;
  settings.batch = std::max<int64_t>(1, settings.batch);
  const auto [low, high] = std::minmax({needs(least), needs(most)});
  const std::string peak = format_bytes(high);
  const std::string range = least == most ? peak : fmt::format("{} to {}", format_bytes(low), peak);
  return fits ? fmt::format("{} | {}", settings.batch, range)
              : fmt::format("does not fit | one text: {}", range);
}

void print_table(const char* title, const MakeSteps& make, uint64_t bytes, const Backend& device) {
  fmt::print("\n## {}\n\n| ranks |", title);
  for (const std::string& word : sharding_words())
    fmt::print(" {}: texts per rank | memory of a rank |", word);
  fmt::print("\n|---|");
  for (size_t i = 0; i < sharding_words().size(); ++i) fmt::print("---|---|");
  const Planner planner({.make = make}, device);
  for (const int ranks : {1, 2, 4, 8, 16}) {
    fmt::print("\n| {} |", ranks);
    for (const std::string& word : sharding_words())
      fmt::print(" {} |", ranks == 1 && word != "none"
                              ? " | "
                              : cell(planner, settings_of(ranks, word), bytes));
    std::fflush(stdout);
  }
  fmt::print("\n");
}

}  // namespace

Run sharding(CLI::App& app) {
  app.description("The memory of the ranks that train large models, by dry runs.");
  struct Options {
    std::string profile = "rx7900xtx.json", memory = "8GB";
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--profile", o->profile)->capture_default_str();
  shared_option(app, "--memory", o->memory)->capture_default_str();
  return [o] {
    const uint64_t bytes = parse_bytes(o->memory);
    const std::unique_ptr<Backend> device = memory::open_profile(o->profile).open();
    fmt::print(
        "# Ranks of {} each\n\nAdamW with f16 activations, f32 parameters, a segment for each "
        "layer, one step of each rank per update. Dry runs of the ranks with the profile {}. A "
        "batch fits when its blocks do.\n",
        o->memory, o->profile);
    print_table("BERT-large, 512 tokens",
                sharded_steps<BertForPreTraining>(BertConfig::preset("large"), fill_masks), bytes,
                *device);
    const GptConfig xl{.n_positions = 2048, .n_embd = 2048, .n_layer = 24, .n_head = 16};
    print_table("A decoder of 1.3 billion parameters (GPT-3 XL), 2048 tokens",
                sharded_steps<GptLMHeadModel>(xl, continue_texts), bytes, *device);
  };
}

}  // namespace rw::bench
