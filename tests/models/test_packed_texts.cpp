// Texts that share a row: losses, gradients and updates equal those of texts in rows of their own.
#include <doctest/doctest.h>

#include <cmath>

#include "data/chat/packed_examples.h"
#include "models/decoder.h"
#include "models/gpt.h"
#include "ops/operators.h"
#include "optim/accumulation/accumulate.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/optim_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t packed_length = 24, packed_vocab = 40;

// Examples of 3 to 20 tokens, some of whose tokens count.
std::vector<InstructionExample> packed_texts() {
  std::vector<InstructionExample> made;
  const std::vector<float> values = hashed("packed texts", 400);
  size_t at = 0;
  for (const int tokens : {9, 20, 3, 14, 7, 11, 5, 16, 4}) {
    InstructionExample example;
    for (int i = 0; i < tokens; ++i) {
      example.tokens.push_back(static_cast<int32_t>((values[at++] + 1) * (packed_vocab / 2)));
      example.counts.push_back(i > tokens / 3);
    }
    made.push_back(example);
  }
  return made;
}

Tensor loss_of_rows(CausalLM& model, const InstructionBatch& batch) {
  const Shape shape = {batch.rows, batch.length};
  return model.loss(tensor(batch.ids, shape), tensor(batch.targets, shape),
                    tensor(batch.starts, shape));
}

// The loss, and the gradients of all parameters.
std::vector<std::vector<float>> loss_and_gradients(CausalLM& model, const InstructionBatch& batch) {
  const Tensor loss = loss_of_rows(model, batch);
  loss.backward();
  std::vector<std::vector<float>> values = {loss.to_vector()};
  for (Tensor p : model.parameters()) {
    values.push_back(p.grad().to_vector());
    p.set_grad({});
  }
  return values;
}

// The length of the difference, over that of the first one.
double packed_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    length += std::pow(double{a[i]}, 2);
  }
  return std::sqrt(difference / length);
}

DecoderConfig packed_config(const std::string& type) {
  DecoderConfig c = {.model_type = type,
                     .vocab_size = packed_vocab,
                     .hidden_size = 32,
                     .intermediate_size = 48,
                     .num_hidden_layers = 3,
                     .num_attention_heads = 4,
                     .num_key_value_heads = 2,
                     .head_dim = 8,
                     .max_position_embeddings = 64};
  if (type == "gemma3_text") {
    c.hidden_act = "gelu_pytorch_tanh";
    c.tie_word_embeddings = true;
    c.sliding_window = 5;
    c.slides = {true, false, true};
    c.query_pre_attn_scalar = 8;
  }
  return c;
}

std::unique_ptr<CausalLM> packed_model(const std::string& type) {
  std::unique_ptr<CausalLM> model;
  if (type == "gpt2") {
    model = std::make_unique<GptLMHeadModel>(GptConfig{
        .vocab_size = packed_vocab, .n_positions = 64, .n_embd = 32, .n_layer = 3, .n_head = 4});
    model->eval();  // no dropout
  } else {
    model = std::make_unique<Decoder>(packed_config(type));
  }
  fill_from_hash(*model, [&](const std::string& name, const Tensor& p) {
    return is_norm_weight(name, p) && type != "gemma3_text";
  });
  return model;
}

InstructionBatch all_rows(const std::vector<InstructionExample>& texts, bool pack) {
  return PackedExamples(texts, {.length = packed_length, .batch_size = 99, .pack = pack})
      .batch(0, 0);
}

}  // namespace

TEST_CASE("packed texts: losses and gradients are those of texts in rows of their own") {
  on_each_device([] {
    const std::vector<InstructionExample> texts = packed_texts();
    const InstructionBatch packed = all_rows(texts, true), single = all_rows(texts, false);
    REQUIRE(single.rows == 9);
    REQUIRE(packed.rows == 4);
    REQUIRE(packed.counted == single.counted);
    for (const char* type : {"qwen3", "llama", "gemma3_text", "gpt2"})
      for (const int segments : {0, 1}) {
        CAPTURE(type);
        const std::unique_ptr<CausalLM> model = packed_model(type);
        model->set_checkpoint(segments);
        const auto together = loss_and_gradients(*model, packed);
        const auto apart = loss_and_gradients(*model, single);
        for (size_t i = 0; i < apart.size(); ++i) {
          CAPTURE(i);
          CHECK(packed_difference(apart[i], together[i]) < 1e-6);
        }
        // As whole rows they would see each other.
        const Shape shape = {packed.rows, packed.length};
        const double whole =
            model->loss(tensor(packed.ids, shape), tensor(packed.targets, shape)).item();
        CHECK(std::abs(whole - apart[0][0]) > 1e-3);
      }
  });
}

TEST_CASE("packed texts: an update of several batches is the mean over all tokens") {
  set_default_device(open_backend("cpu"));
  const std::vector<InstructionExample> texts = packed_texts();
  const InstructionBatch whole = all_rows(texts, true);
  PackedExamples rows(texts, {.length = packed_length, .batch_size = 3});
  REQUIRE(rows.batches() == 2);
  REQUIRE(rows.batch(0, 0).counted != 3 * rows.batch(0, 1).counted);

  const std::unique_ptr<CausalLM> model = packed_model("qwen3"), other = packed_model("qwen3");
  const auto expected = loss_and_gradients(*other, whole);
  Accumulate optimizer(SGD(model->parameters(), {.lr = 1}), 2);
  for (int64_t i = 0; i < 2; ++i) {
    const InstructionBatch batch = rows.batch(0, i);
    optimizer.backward(loss_of_rows(*model, batch), static_cast<float>(batch.counted));
    optimizer.step();
  }
  const std::vector<Tensor> after = model->parameters(), before = other->parameters();
  for (size_t i = 0; i < after.size(); ++i) {
    const std::vector<float> change = (before[i].detach() - after[i].detach()).to_vector();
    // A parameter of about 0.25 that loses a gradient keeps its own rounding.
    double difference = 0;
    for (size_t e = 0; e < change.size(); ++e)
      difference = std::max(difference, std::abs(double{change[e]} - double{expected[i + 1][e]}));
    CHECK(difference < 3e-7);
  }

  // Each batch's loss is the mean over its own tokens, and they are not alike.
  double sum = 0;
  for (int64_t i = 0; i < 2; ++i) {
    const InstructionBatch batch = rows.batch(0, i);
    sum += loss_of_rows(*other, batch).item() * static_cast<double>(batch.counted);
  }
  CHECK(sum / static_cast<double>(whole.counted) == doctest::Approx(expected[0][0]).epsilon(1e-6));
}

TEST_CASE("packed texts: a dry run predicts the peak of training to the byte") {
  on_each_device([] {
    const auto device = Device::create(open_backend(default_device()->info().backend));
    exchange_default_device(device);
    const auto steps = [] {
      const std::unique_ptr<CausalLM> model = packed_model("gemma3_text");
      const InstructionBatch batch = all_rows(packed_texts(), true);
      SGD optimizer(model->parameters(), {.lr = 0.1f});
      for (int i = 0; i < 2; ++i) {
        optimizer.backward(loss_of_rows(*model, batch));
        optimizer.step();
        optimizer.zero_grad();
      }
    };
    const Forecast forecast = plan(steps);
    steps();
    CHECK(forecast.memory.peak == device->memory_report().peak);
  });
}

TEST_CASE("packed texts: starts that do not fit are errors") {
  set_default_device(open_backend("cpu"));
  const std::unique_ptr<CausalLM> model = packed_model("qwen3");
  const Tensor ids = zeros({2, 6}, DType::i32);
  CHECK_THROWS_AS(model->loss(ids, ids, zeros({2, 5}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(model->loss(ids, ids, zeros({2, 6})), DTypeError);
  KeyValueCaches caches = model->make_caches(2, 8);
  CHECK_THROWS_AS(model->hidden(ids, &caches, zeros({2, 6}, DType::i32)), ValueError);
}

}  // namespace rw::test
