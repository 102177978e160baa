// GPT-2: outputs, loss and every gradient as PyTorch computes them; generation; files.
#include <cmath>
#include <fstream>

#include "data/base/files.h"
#include "io/models/gpt.h"
#include "ops/autocast.h"
#include "ops/operators.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"
#include "tests/models/golden_tokens.h"
#include "tests/models/language_model_checks.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

namespace gpt_goldens {
#include "tests/goldens/gpt.inc"
}

constexpr int64_t gpt_prompt = 5;

GptConfig small_gpt(double dropout = 0) {
  return {.vocab_size = golden_vocab,
          .n_positions = 16,
          .n_embd = 32,
          .n_layer = 2,
          .n_head = 4,
          .resid_pdrop = dropout,
          .embd_pdrop = dropout,
          .attn_pdrop = dropout};
}

Tensor gpt_ids() {
  return tensor(hashed_tokens("ids"), {golden_batch, golden_length});
}

// Every fifth token is not to be predicted.
Tensor gpt_targets() {
  std::vector<int32_t> tokens = hashed_tokens("targets");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (i % golden_length % 5 == 0) tokens[i] = -100;
  return tensor(tokens, {golden_batch, golden_length});
}

}  // namespace

TEST_CASE("gpt: outputs and gradients are PyTorch's") {
  on_each_device([] {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 2e-5}, {DType::f16, 3e-2}}) {
      CAPTURE(name(dtype));
      GptLMHeadModel model(small_gpt());
      fill_from_hash(model, is_norm_weight);
      const Autocast autocast(dtype, dtype != DType::f32);
      {
        const NoGrad guard;
        check_row(model(gpt_ids()), gpt_goldens::outputs[0], tolerance);
      }
      const Tensor loss = model.loss(gpt_ids(), gpt_targets());
      check_row(loss, gpt_goldens::outputs[1], tolerance);
      const float scale = dtype == DType::f16 ? 256 : 1;
      (loss * scale).backward();
      check_gradients(model, gpt_goldens::gradients, scale, tolerance);
    }
  });
}

TEST_CASE("gpt: generates PyTorch's tokens, with a cache and without one") {
  on_each_device([] {
    GptLMHeadModel model(small_gpt(0.5));
    fill_from_hash(model, is_norm_weight);
    const Tensor first = slice(gpt_ids(), 1, 0, gpt_prompt);
    for (const bool use_cache : {true, false}) {
      const Tensor all = model.generate(first, {.max_new_tokens = golden_length - gpt_prompt,
                                                .sample = {.temperature = 0},
                                                .use_cache = use_cache});
      CHECK(all.to_ints() == gpt_goldens::generated);
    }
    CHECK(model.is_training());
    CHECK(Tape::current()->stats().records == 0);
    CHECK(model.generate(first, {.max_new_tokens = 0}).to_ints() == first.to_ints());
    int calls = 0;
    const Tensor stopped = model.generate(
        first, {.max_new_tokens = 5, .sample = {.temperature = 0}, .on_tokens = [&](auto tokens) {
                  CHECK(tokens.size() == golden_batch);
                  CHECK(tokens[0] == gpt_goldens::generated[size_t(gpt_prompt + calls)]);
                  return ++calls < 2;
                }});
    CHECK(stopped.shape() == Shape{golden_batch, gpt_prompt + 2});
    CHECK_THROWS_AS(model.generate(first, {.max_new_tokens = 12}), ShapeError);
    CHECK_THROWS_AS(model.generate(first, {.max_new_tokens = 2, .sample = {.temperature = -1}}),
                    ValueError);
    CHECK_THROWS_AS(model.generate(slice(first, 1, 0, 0)), ShapeError);
  });
}

TEST_CASE("gpt: logits through a cache are those of the whole sequence") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16}) {
      GptLMHeadModel model(small_gpt());
      fill_from_hash(model, is_norm_weight);
      const Autocast autocast(dtype, dtype != DType::f32);
      const NoGrad guard;
      const std::vector<float> whole = cast(model(gpt_ids()), DType::f32).to_vector();
      KeyValueCaches caches = model.transformer.make_caches(golden_batch, golden_length);
      std::vector<Tensor> parts;
      for (int64_t at = 0; at < golden_length;) {  // 4 tokens, then 1 and 2 by turns
        const int64_t end = std::min(golden_length, at + (at == 0 ? 4 : 1 + at % 2));
        parts.push_back(model.forward(slice(gpt_ids(), 1, at, end), &caches));
        at = end;
      }
      CHECK(caches[1].length() == golden_length);
      const std::vector<float> joined = cast(concat(parts, 1), DType::f32).to_vector();
      CHECK(largest_error(joined, whole) < (dtype == DType::f16 ? 4e-3 : 1e-5));
      CHECK_THROWS_AS(model.forward(slice(gpt_ids(), 1, 0, 1), &caches), ShapeError);  // it is full
    }
    GptLMHeadModel model(small_gpt());
    KeyValueCaches caches = model.transformer.make_caches(golden_batch, golden_length);
    CHECK_THROWS_AS(model.forward(gpt_ids(), &caches), AutogradError);
    Tape::current()->clear();
  });
}

TEST_CASE("gpt: the perplexity is of the second halves of windows") {
  on_each_device([] {
    GptLMHeadModel model(small_gpt(0.5));
    fill_from_hash(model, is_norm_weight);
    const std::vector<int32_t> text = hashed_tokens("text");  // 36 tokens: two windows and a rest
    constexpr int64_t window = 16;
    double sum = 0;
    for (const int64_t at : {int64_t(0), window}) {
      std::vector<int32_t> ids(text.begin() + at, text.begin() + at + window);
      ids[0] = 7;
      const NoGrad guard;
      model.eval();
      const std::vector<float> logs = log_softmax(model(tensor(ids, {1, window}))).to_vector();
      model.train();
      for (int64_t i = window / 2; i + 1 < window; ++i)
        sum -= logs[size_t(i * golden_vocab + text[size_t(at + i + 1)])];
    }
    const Perplexity found = perplexity(model, text, window, 7);
    CHECK(found.tokens == 14);
    CHECK(found.value == doctest::Approx(std::exp(sum / 14)).epsilon(1e-4));
    CHECK(model.is_training());
    CHECK_THROWS_AS(perplexity(model, text, 18), ValueError);
    CHECK_THROWS_AS(perplexity(model, text, 2), ValueError);
    CHECK_THROWS_AS(perplexity(model, std::span(text).first(15), window), ValueError);
  });
}

TEST_CASE("gpt: tokens are drawn with the probabilities of their logits") {
  on_each_device([] {
    constexpr int64_t draws = 20000;
    const std::vector<float> chances = {0.5f, 0.3f, 0.15f, 0.05f};
    std::vector<float> logs;
    for (const float c : chances) logs.push_back(2 * std::log(c));
    const Tensor logits = contiguous(expand(tensor(logs, {1, 4}), {draws, 4}));
    Generator generator(7);
    const std::vector<int32_t> drawn =
        sample_tokens(logits, {.temperature = 2, .generator = &generator}).to_ints();
    for (int32_t token = 0; token < 4; ++token) {
      const auto count = std::count(drawn.begin(), drawn.end(), token);
      // Five standard deviations.
      const double spread = 5 * std::sqrt(chances[token] * (1 - chances[token]) / double(draws));
      CHECK(std::abs(double(count) / double(draws) - chances[token]) < spread);
    }
    generator.seed(7);
    CHECK(sample_tokens(logits, {.temperature = 2, .generator = &generator}).to_ints() == drawn);
    for (const float cold : {1e-40f, 1e-38f, 1e-31f})
      CHECK(sample_tokens(logits, {.temperature = cold, .generator = &generator}).to_ints() ==
            sample_tokens(logits, {.temperature = 0}).to_ints());
    for (const int32_t token : sample_tokens(logits, {.temperature = 0}).to_ints())
      CHECK(token == 0);
    // 0.5 and 0.3 of the four are left, by number or by what they have together.
    for (const SampleOptions& few :
         {SampleOptions{.temperature = 2, .top_k = 2, .generator = &generator},
          SampleOptions{.temperature = 2, .top_p = 0.7f, .generator = &generator},
          SampleOptions{.temperature = 2, .min_p = 0.5f, .generator = &generator}}) {
      const std::vector<int32_t> tokens = sample_tokens(logits, few).to_ints();
      const auto first = std::count(tokens.begin(), tokens.end(), 0);
      CHECK(first + std::count(tokens.begin(), tokens.end(), 1) == draws);
      CHECK(std::abs(double(first) / double(draws) - 0.625) < 0.02);
    }
    for (const int32_t token : sample_tokens(logits, {.top_p = 1e-6f}).to_ints()) CHECK(token == 0);
    // Seen tokens become less likely, whatever the sign of their logits, and once each.
    const Tensor signs = tensor(std::vector<float>{3, 2, -1, -1.5f}, {1, 4});
    const auto best = [&](const Tensor& from, float penalty, std::vector<int32_t> seen) {
      const auto count = static_cast<int64_t>(seen.size());
      return sample_tokens(from, {.temperature = 0, .repetition_penalty = penalty},
                           tensor(seen, {1, count}))
          .to_ints()[0];
    };
    CHECK(best(signs, 1.4f, {0, 0}) == 0);
    CHECK(best(signs, 1.6f, {0, 0}) == 1);
    CHECK(best(slice(signs, 1, 2, 4), 2, {0, 0}) == 1);
    CHECK_THROWS_AS(sample_tokens(logits, {.min_p = 2}), ValueError);
    CHECK_THROWS_AS(sample_tokens(logits, {.repetition_penalty = 0}), ValueError);
    CHECK_THROWS_AS(sample_tokens(logits, {.top_k = -1}), ValueError);
    CHECK_THROWS_AS(sample_tokens(logits, {.top_p = 0}), ValueError);
  });
}

TEST_CASE("gpt: checkpoint segments keep less and change no bit") {
  on_each_device([] {
    const auto make = [] {
      manual_seed(5);
      GptConfig config = small_gpt(0.1);
      config.n_layer = 5;
      return std::make_unique<GptLMHeadModel>(config);
    };
    check_segments(make, gpt_ids, gpt_targets);
  });
}

TEST_CASE("gpt: sizes as published, and what does not fit") {
  on_each_device([] {
    GptConfig config = GptConfig::preset("gpt2");
    config.n_layer = 1;
    CHECK(GptModel(config).parameter_count() == 124439808 - 11 * 7087872);
    CHECK(GptConfig::preset("gpt2-xl").n_head == 25);
    CHECK_THROWS_AS(GptConfig::preset("gpt3"), ValueError);
    config = small_gpt();
    config.n_head = 5;
    CHECK_THROWS_AS(GptModel{config}, ValueError);
    GptLMHeadModel model(small_gpt());
    CHECK_THROWS_AS(model(zeros({1, 17}, DType::i32)), ShapeError);
    CHECK_THROWS_AS(model(zeros({17}, DType::i32)), ShapeError);
    CHECK_THROWS_AS(model.loss(gpt_ids(), zeros({3}, DType::i32)), ShapeError);
    CHECK_THROWS_AS(KeyValueCache(1, 0, 1, 1), ShapeError);
  });
}

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("gpt io: files have Hugging Face's names and layout") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  GptLMHeadModel model(small_gpt());
  save_gpt(file, model);
  const SafetensorsFile saved(file);
  CHECK(saved.tensors().size() == 2 + 2 * 12 + 2);
  CHECK(saved.tensors().at("transformer.h.1.attn.c_attn.weight").shape == Shape{32, 96});
  CHECK(saved.tensors().at("transformer.h.1.mlp.c_fc.weight").shape == Shape{32, 128});
  CHECK(saved.tensors().at("transformer.h.0.mlp.c_proj.weight").shape == Shape{128, 32});
  GptLMHeadModel same(small_gpt());
  CHECK(all_values(same) != all_values(model));
  CHECK(load_gpt(file, same).unexpected.empty());
  CHECK(all_values(same) == all_values(model));
  GptModel bare(small_gpt());
  load_gpt(file, bare);
  CHECK(all_values(bare) == all_values(model));

  // The bare model, as the first files have it: with masks, and a head.
  StateDict tensors = gpt_state_dict(bare);
  tensors.push_back({"h.0.attn.bias", ones({1, 1, 16, 16})});
  tensors.push_back({"lm_head.weight", bare.wte.weight});
  tensors.push_back({"more", ones({1})});
  write_safetensors(file, tensors);
  GptLMHeadModel early(small_gpt());
  CHECK(load_gpt(file, early).unexpected == std::vector<std::string>{"more"});
  CHECK(all_values(early) == all_values(model));

  GptConfig deeper = small_gpt();
  deeper.n_layer = 3;
  GptLMHeadModel deep(deeper);
  const std::vector<float> before = all_values(deep);
  CHECK_THROWS_AS(load_gpt(file, deep), FileError);
  CHECK(all_values(deep) == before);
}

TEST_CASE("gpt io: config.json") {
  const TemporaryFolder folder;
  const auto file = folder / "config.json";
  GptConfig config = small_gpt(0.25);
  write_gpt_config(file, config);
  GptConfig back = read_gpt_config(file);
  CHECK(back.n_embd == 32);
  CHECK(back.n_inner == 0);
  CHECK(back.attn_pdrop == 0.25);
  config.n_inner = 64;
  write_gpt_config(file, config);
  CHECK(read_gpt_config(file).inner() == 64);
  write_file(file, std::string(R"({"n_layer": 3, "unknown": [1]})"));
  CHECK(read_gpt_config(file).n_layer == 3);
  CHECK(read_gpt_config(file).vocab_size == 50257);
  for (const char* wrong :
       {"{", "[]", R"({"n_embd": "wide"})", R"({"activation_function": "relu"})",
        R"({"n_embd": 10, "n_head": 3})", R"({"tie_word_embeddings": false})"}) {
    CAPTURE(wrong);
    write_file(file, std::string(wrong));
    CHECK_THROWS_AS(read_gpt_config(file), FileError);
  }
}

TEST_SUITE_END();

}  // namespace rw::test
