// MLPs that take some tokens at a time: values, gradients and memory, and the planner's choice of
// it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/decoder.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "optim/adam.h"
#include "planner/choices/choice_text.h"
#include "planner/choices/planned_run.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

using Lists = std::vector<std::vector<float>>;

constexpr int64_t rows_batch = 2;

DecoderConfig wide_mlp(const std::string& type = "llama") {
  DecoderConfig c = {.model_type = type,
                     .vocab_size = 50,
                     .hidden_size = 32,
                     .intermediate_size = 256,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .head_dim = 8,
                     .max_position_embeddings = 4096};
  if (type != "gemma3_text") return c;
  c.hidden_act = "gelu_pytorch_tanh";
  c.tie_word_embeddings = true;
  c.slides = {false, false, false};
  return c;
}

Tensor rows_ids(int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows_batch * length; ++i) ids.push_back(static_cast<int32_t>(i * 7 % 49));
  return tensor(ids, {rows_batch, length});
}

struct Rows {
  int64_t tokens = 0;  // of an MLP at a time
  int checkpoint = 0;
  bool adapters = false;
};

// The loss, the logits without gradients, and the gradients of everything that is trained.
Lists outcome(const std::string& type, const Rows& rows) {
  manual_seed(5);
  Decoder model(wide_mlp(type));
  if (rows.adapters) {
    add_lora(model, {.rank = 4});
    for (const NamedLora& lora : lora_adapters(model)) init::normal_(lora.adapter->B, 0, 0.1f);
  }
  model.set_checkpoint(rows.checkpoint);
  model.set_mlp_rows(rows.tokens);
  const Tensor ids = rows_ids(19), loss = model.loss(ids, ids);
  loss.backward();
  Lists found = {loss.to_vector()};
  {
    const NoGrad guard;
    found.push_back(model(ids).to_vector());
  }
  for (const Tensor& p : model.parameters())
    if (p.requires_grad()) found.push_back(p.grad().to_vector());
  return found;
}

double rows_distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    length += std::pow(double{a[i]}, 2);
  }
  return std::sqrt(difference / std::max(length, 1e-30));
}

// Fine-tunes a small decoder by adapters.
class RowSteps : public TrainingSteps {
 public:
  explicit RowSteps(const StepSettings& settings) : settings_(settings), model_(wide_mlp()) {
    add_lora(model_, {.rank = 4});
    model_.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
    model_.set_mlp_rows(settings.mlp_rows);
    optimizer_.emplace(one_group(model_.parameters()), AdamWOptions{});
  }
  void dry_step(const BatchShape&) override {
    step(empty({settings_.batch, settings_.length_or(2048)}, DType::i32));
  }
  void step(const Tensor& ids) {
    {
      const Tensor loss = model_.loss(ids, ids);
      optimizer_->backward(loss);
    }
    optimizer_->step();
    optimizer_->zero_grad();
    default_device()->end_step();
  }

 private:
  const StepSettings settings_;
  Decoder model_;
  std::optional<AdamW> optimizer_;
};

TrainingProgram of_rows(bool has_words = true) {
  TrainingProgram program = {
      .make = [](const StepSettings& s) { return std::make_unique<RowSteps>(s); },
      .settings = {.batch = rows_batch},
      .longest = 4096};
  if (has_words) program.words["mlp-rows"] = "MLPs of {} tokens";
  return program;
}

// A device with memory of its own, so that boundaries may go to host memory.
std::unique_ptr<Backend> with_bus() {
  const auto backend = open_backend("cpu");
  DeviceInfo info = backend->info();
  info.host_bandwidth = {25e9, 25e9};
  return backend->dry(info);
}

}  // namespace

TEST_CASE("mlp rows: values are those of all tokens at once, sums those of another order") {
  on_each_device([] {
    for (const char* type : {"llama", "gemma3_text"})
      for (const bool adapters : {false, true}) {
        CAPTURE(type);
        CAPTURE(adapters);
        const Lists whole = outcome(type, {.adapters = adapters});
        for (const int64_t tokens : {5, 19, 38}) {
          CAPTURE(tokens);
          const Lists parts = outcome(type, {.tokens = tokens, .adapters = adapters});
          REQUIRE(parts.size() == whole.size());
          if (tokens == 38) CHECK(parts == whole);  // they all fit
          for (size_t i = 0; i < whole.size(); ++i) CHECK(rows_distance(whole[i], parts[i]) < 1e-5);
        }
      }
  });
}

TEST_CASE("mlp rows: recomputation changes no bit") {
  on_each_device([] {
    const Rows rows{.tokens = 7, .adapters = true};
    const Lists dropped = outcome("llama", rows);
    Rows blocks = rows;
    blocks.checkpoint = 1;
    CHECK(outcome("llama", blocks) == dropped);
    const DropScope kept(false);
    CHECK(outcome("llama", rows) == dropped);
  });
}

TEST_CASE("mlp rows: what an MLP has in memory is as large as they are" *
          doctest::test_suite("host")) {
  const auto device = with_bus();
  const Planner planner(of_rows(), *device);
  const auto peak = [&](int64_t tokens, int64_t length) {
    StepSettings s = planner.settings();
    s.checkpoint = "block";
    s.mlp_rows = tokens;
    s.length = length;
    return static_cast<double>(planner.peak(s));
  };
  // In a block that is replayed, the MLP has eight tensors of 256 elements a token, and attention
  // has none of more than 32.
  CHECK(peak(64, 1024) < 0.5 * peak(0, 1024));
  CHECK(peak(64, 1024) < peak(256, 1024));
  const double by_token = (peak(64, 2048) - peak(64, 1024)) / 1024;
  CHECK(by_token < 0.4 * (peak(0, 2048) - peak(0, 1024)) / 1024);
  Decoder model(wide_mlp());
  CHECK_THROWS_AS(model.set_mlp_rows(-1), ValueError);
}

TEST_CASE("mlp rows: the planner chooses them, and real steps take what it says" *
          doctest::test_suite("host")) {
  const auto device = with_bus();
  const Planner planner(of_rows(), *device), without(of_rows(false), *device);
  Choices choices(planner, planner.settings(), {.fixed = {"budget", "offload", "fused"}});
  Choices others(without, without.settings(), {.fixed = {"budget", "offload", "fused"}});
  const Choice least = choices.least();
  CHECK(least.settings.mlp_rows == 1024);
  CHECK(least.options.ends_with("MLPs of 1024 tokens"));
  CHECK(others.least().settings.mlp_rows == 0);
  CHECK(least.peak() < others.least().peak());
  Choices fixed(planner, planner.settings(), {.fixed = {"mlp-rows", "budget"}});
  CHECK(fixed.least().settings.mlp_rows == 0);

  StepSettings settings = planner.settings();
  settings.checkpoint = "block";
  settings.mlp_rows = 100;
  settings.length = 640;
  const uint64_t promised = planner.peak(settings);
  set_default_device(open_backend("cpu"));
  {
    const SettingsScope scope(settings);
    RowSteps steps(settings);
    for (int i = 0; i < 3; ++i) steps.step(rows_ids(640));
  }
  CHECK(default_device()->memory_report().peak == promised);
}

TEST_CASE("mlp rows: the longest text is that of the way that is leanest there" *
          doctest::test_suite("host")) {
  const auto device = with_bus();
  const Planner planner(of_rows(), *device);
  StepSettings lean = planner.settings();
  lean.checkpoint = "block";
  lean.host_boundaries = true;
  lean.mlp_rows = 1024;
  lean.length = 3072;
  const uint64_t peak = planner.peak(lean);
  ForecastOptions blocks{.memory = DryMemory::blocks_of_device};
  blocks.memory_limit = planner.forecast(lean, blocks).memory.peak_reserved;
  Choices choices(planner, planner.settings(),
                  {.bytes = blocks.memory_limit, .fixed = {"budget", "offload", "fused", "batch"}});
  const std::optional<Choice> longest = choices.longest();
  REQUIRE(longest);
  CAPTURE(longest->options);
  CHECK_NOTHROW(planner.forecast(longest->settings, blocks));
  CHECK(longest->settings.length >= lean.length * 7 / 8);
  CHECK(contains(
      more_text(choices, choices.asked()),
      fmt::format("Up to length {} fits, with checkpoint block host boundaries MLPs of 1024",
                  longest->settings.length)));
  lean.length = longest->settings.length;
  CHECK(longest->settings == lean);
  lean.length = 3072;
  lean.mlp_rows = 0;
  CHECK(planner.peak(lean) > peak);
}
