// BERT: outputs, losses and every gradient as PyTorch computes them; checkpoint segments.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "models/bert.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/models/golden_tokens.h"

using namespace rw;
using test::check_gradients;
using test::check_row;
using test::golden_batch;
using test::golden_length;
using test::golden_vocab;
using test::GoldenRow;
using test::hashed_tokens;
using test::on_each_device;

namespace {

namespace bert_goldens {
#include "tests/goldens/bert.inc"
}

const std::vector<int32_t> bert_lengths = {12, 9, 5};

void fill_bert_from_hash(const Module& module) {
  test::fill_from_hash(module, [](const std::string& name, const Tensor&) {
    return name.ends_with("LayerNorm.weight");
  });
}

BertConfig small_bert(float dropout) {
  return {.vocab_size = golden_vocab,
          .hidden_size = 32,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .intermediate_size = 64,
          .max_position_embeddings = 16,
          .hidden_dropout_prob = dropout,
          .attention_probs_dropout_prob = dropout};
}

// The goldens' batch: every third token is to be predicted, but not the padding.
struct SmallBatch {
  BertInput input;
  Tensor positions, targets, labels;

  SmallBatch() {
    const std::vector<int32_t> all_targets = hashed_tokens("targets");
    std::vector<int32_t> types, at, wanted;
    for (int32_t n = 0; n < golden_batch; ++n) {
      for (int32_t i = 0; i < golden_length; ++i) {
        types.push_back(i >= bert_lengths[n] / 2);
        if (i % 3 != 1 || i >= bert_lengths[n]) continue;
        at.push_back(n * static_cast<int32_t>(golden_length) + i);
        wanted.push_back(all_targets[at.back()]);
      }
    }
    const auto count = static_cast<int64_t>(at.size());
    input = {.ids = tensor(hashed_tokens("ids"), {golden_batch, golden_length}),
             .token_types = tensor(types, {golden_batch, golden_length}),
             .lengths = tensor(bert_lengths, {golden_batch})};
    positions = tensor(at, {count});
    targets = tensor(wanted, {count});
    labels = tensor(std::vector<int32_t>{0, 1, 1}, {golden_batch});
  }
};

void compare_bert_with_goldens(DType dtype, double tolerance) {
  BertForPreTraining model(small_bert(0));
  fill_bert_from_hash(model);
  const SmallBatch data;
  const Autocast autocast(dtype, dtype != DType::f32);
  const Tensor hidden = model.forward(data.input);
  const Tensor token_logits = model.token_logits(hidden, data.positions);
  Tensor predicted;
  const Tensor token_loss = model.token_loss(hidden, data.positions, data.targets, &predicted);
  const Tensor logits = model.next_sentence_logits(hidden);
  const Tensor sentence_loss = cross_entropy(logits, data.labels);
  const std::vector<Tensor> got = {hidden, token_logits, logits, token_loss, sentence_loss};
  REQUIRE(bert_goldens::outputs.size() == got.size());
  for (size_t i = 0; i < got.size(); ++i) check_row(got[i], bert_goldens::outputs[i], tolerance);
  CHECK(predicted.to_ints() == argmax(token_logits).to_ints());

  const float scale = dtype == DType::f16 ? 256 : 1;
  ((token_loss + sentence_loss) * scale).backward();
  check_gradients(model, bert_goldens::gradients, scale, tolerance);
}

// Loss and gradients of a fresh model, and the bytes alive between forward and backward.
struct BertOutcome {
  std::vector<std::vector<float>> values;
  uint64_t activations = 0;
};

BertOutcome run_bert(int checkpoint_every, DType dtype) {
  manual_seed(5);
  BertConfig config = small_bert(0.1f);
  config.num_hidden_layers = 5;
  BertForPreTraining model(config);
  model.bert.set_checkpoint(checkpoint_every);
  const SmallBatch data;
  Tensor loss;
  {
    const Autocast autocast(dtype, dtype != DType::f32);
    const Tensor hidden = model.forward(data.input);
    loss = model.token_loss(hidden, data.positions, data.targets) +
           cross_entropy(model.next_sentence_logits(hidden), data.labels);
  }
  BertOutcome outcome;
  outcome.activations =
      default_device()->memory_report().live_by_purpose[static_cast<size_t>(Purpose::activation)];
  outcome.values.push_back(loss.to_vector());
  loss.backward();
  for (const Tensor& p : model.parameters()) outcome.values.push_back(p.grad().to_vector());
  CHECK(Tape::current()->stats().records == 0);
  return outcome;
}

}  // namespace

TEST_CASE("bert: PyTorch's outputs, losses and gradients, f32") {
  on_each_device([] { compare_bert_with_goldens(DType::f32, 1e-5); });
}

TEST_CASE("bert: PyTorch's outputs, losses and gradients, f16") {
  on_each_device([] { compare_bert_with_goldens(DType::f16, 2e-2); });
}

TEST_CASE("bert: padding changes nothing") {
  on_each_device([] {
    BertForPreTraining model(small_bert(0));
    fill_bert_from_hash(model);
    const NoGrad guard;
    const SmallBatch data;
    const Tensor padded = model.forward(data.input);
    for (int64_t n = 0; n < golden_batch; ++n) {
      const auto part = [&](const Tensor& t) {
        return slice(slice(t, 0, n, n + 1), 1, 0, bert_lengths[n]);
      };
      const Tensor alone = model.forward({part(data.input.ids), part(data.input.token_types)});
      const auto expected = part(padded).to_vector();
      CHECK(test::largest_difference(alone.to_vector(), {expected.begin(), expected.end()}) < 1e-5);
    }
  });
}

TEST_CASE("bert: checkpoint segments keep less and change no bit") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      CAPTURE(name(dtype));
      const BertOutcome plain = run_bert(0, dtype);
      for (const int every : {1, 2}) {
        CAPTURE(every);
        const BertOutcome segments = run_bert(every, dtype);
        CHECK(segments.values == plain.values);
        CHECK(segments.activations < plain.activations * 2 / 3);
      }
    }
    setenv("REWIND_RECOMPUTE", "1", 1);
    BertForPreTraining model(small_bert(0));
    unsetenv("REWIND_RECOMPUTE");
    const Tensor hidden = model.forward(SmallBatch().input);
    CHECK(Tape::current()->stats().segments == 2);
  });
}

TEST_CASE("bert: sizes as published, and what does not fit") {
  on_each_device([] {
    CHECK(BertModel(BertConfig::preset("tiny")).parameter_count() == 4385920);
    CHECK(BertConfig::preset("base").num_attention_heads == 12);
    CHECK(BertConfig::preset("large").intermediate_size == 4096);
    CHECK_THROWS_AS(BertConfig::preset("huge"), ValueError);
    BertConfig odd = small_bert(0);
    odd.num_attention_heads = 5;
    CHECK_THROWS_AS(BertModel{odd}, ValueError);

    BertForPreTraining plain(small_bert(0), false);
    const Tensor ids = tensor(std::vector<int32_t>(17), {1, 17});
    CHECK_THROWS_AS(plain.forward({ids}), ShapeError);
    const Tensor hidden = plain.forward({slice(ids, 1, 0, 16)});
    CHECK_THROWS_AS(plain.next_sentence_logits(hidden), ValueError);

    BertForSequenceClassification classifier(small_bert(0.1f), 3);
    const Tensor logits = classifier.forward({slice(ids, 1, 0, 8)});
    CHECK(logits.shape() == Shape{1, 3});
    cross_entropy(logits, tensor(std::vector<int32_t>{2}, {1})).backward();
    for (const Tensor& p : classifier.parameters()) CHECK(p.grad().defined());
  });
}
