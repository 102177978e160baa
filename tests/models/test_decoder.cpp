// Decoders: logits and gradients as near to f64 as Hugging Face's f32, generation, memory, sizes.
#include <cmath>

#include "models/decoder.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "ops/operators.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/models/language_model_checks.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

// The errors of logits and gradients are root mean squares over the samples, each relative to the
// root mean square of its tensor.
struct DecoderErrors {
  double logits, gradients;
};

// Hugging Face's model computes the rows in f64. The errors are those of its f32, f16 and bf16.
struct DecoderGolden {
  std::string name;
  DecoderConfig config;
  std::vector<DecoderErrors> errors;
  std::vector<GoldenRow> rows;  // logits, loss, gradients
  std::vector<int32_t> generated;
};

#include "tests/goldens/decoder.inc"

constexpr int64_t decoder_batch = 2, decoder_length = 24, decoder_vocab = 50, decoder_prompt = 8;

Tensor tokens(const std::string& name, bool leave_out = false) {
  std::vector<int32_t> values;
  for (const float v : hashed(name, decoder_batch * decoder_length)) {
    const bool is_left_out = leave_out && values.size() % decoder_length % 5 == 0;
    values.push_back(is_left_out ? -100 : static_cast<int32_t>((v + 1) * (decoder_vocab / 2)));
  }
  return tensor(values, {decoder_batch, decoder_length});
}

Tensor decoder_ids() {
  return tokens("ids");
}
Tensor decoder_targets() {
  return tokens("targets", true);
}

std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config) {
  auto model = std::make_unique<Decoder>(config);
  fill_from_hash(*model, [&](const std::string& name, const Tensor& p) {
    return is_norm_weight(name, p) && !config.is_gemma();
  });
  return model;
}

// It adds up squares of relative errors.
struct SquaredErrors {
  double squares = 0, count = 0;
  void add(const Tensor& got, const GoldenRow& row, float scale = 1) {
    REQUIRE(got.numel() == row.size);
    const std::vector<float> values = (cast(got, DType::f32) / scale).to_vector();
    const double root = row.norm / std::sqrt(static_cast<double>(row.size));
    for (size_t i = 0; i < row.samples.size(); ++i) {
      const double error = values[i * values.size() / row.samples.size()] - row.samples[i];
      squares += error * error / (root * root);
      ++count;
    }
  }
  double root() const { return std::sqrt(squares / count); }
};

std::map<std::string, Tensor> gradients_of(const Module& model) {
  std::map<std::string, Tensor> found;
  for (const NamedTensor& p : model.named_parameters()) found[p.name] = p.tensor.grad();
  return found;
}

// Our errors must be at most 1.5 times those of Hugging Face's dtype.
void check_decoder_errors(DType dtype, bool autocast = false) {
  for (const DecoderGolden& golden : decoders) {
    CAPTURE(golden.name);
    const auto model = make_decoder(golden.config);
    if (!autocast) model->to(dtype);
    const Autocast scope(dtype, autocast);
    SquaredErrors logits, gradients;
    {
      const NoGrad guard;
      logits.add((*model)(decoder_ids()), golden.rows[0]);
    }
    const Tensor loss = model->loss(decoder_ids(), decoder_targets());
    const float scale = dtype == DType::f16 ? 256 : 1;
    (loss * scale).backward();
    const std::map<std::string, Tensor> found = gradients_of(*model);
    CHECK(found.size() == golden.rows.size() - 2);
    for (size_t i = 2; i < golden.rows.size(); ++i) {
      REQUIRE_MESSAGE(found.contains(golden.rows[i].name), golden.rows[i].name);
      gradients.add(found.at(golden.rows[i].name), golden.rows[i], scale);
    }
    const DecoderErrors& theirs = golden.errors[dtype == DType::f32   ? 0
                                                : dtype == DType::f16 ? 1
                                                                      : 2];
    const double off = cast(loss, DType::f32).item() / golden.rows[1].samples[0] - 1;
    CHECK(std::abs(off) <= 3 * theirs.logits);
    CHECK(logits.root() <= 1.5 * theirs.logits);
    CHECK(gradients.root() <= 1.5 * theirs.gradients);
  }
}

// The program takes training steps of a small Qwen3.
void decoder_steps(int every) {
  Decoder model({.vocab_size = 300,
                 .hidden_size = 64,
                 .intermediate_size = 160,
                 .num_hidden_layers = 3,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .tie_word_embeddings = true});
  model.set_checkpoint(every);
  AdamW optimizer(one_group(model.parameters()), {});
  const std::vector<int32_t> text(2 * 40, 7);
  for (int i = 0; i < 3; ++i) {
    {
      const Tensor loss = model.loss(tensor(text, {2, 40}), tensor(text, {2, 40}));
      optimizer.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    default_device()->end_step();
  }
}

}  // namespace

TEST_CASE("decoder: logits and gradients are as near to f64 as those of Hugging Face") {
  on_each_device([] {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      CAPTURE(name(dtype));
      check_decoder_errors(dtype);
    }
    check_decoder_errors(DType::f16, true);
  });
}

TEST_CASE("decoder: the same on the reference" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  check_decoder_errors(DType::f32);
}

TEST_CASE("decoder: generates Hugging Face's tokens, with caches and without") {
  on_each_device([] {
    for (const DecoderGolden& golden : decoders) {
      CAPTURE(golden.name);
      const auto model = make_decoder(golden.config);
      for (const bool use_cache : {true, false}) {
        const Tensor all = model->generate(slice(decoder_ids(), 1, 0, decoder_prompt),
                                           {.max_new_tokens = decoder_length - decoder_prompt,
                                            .sample = {.temperature = 0},
                                            .use_cache = use_cache});
        CHECK(all.to_ints() == golden.generated);
      }
    }
  });
}

TEST_CASE("decoder: logits through caches are those of the whole text, windows included") {
  on_each_device([] {
    for (const DecoderGolden& golden : decoders) {
      CAPTURE(golden.name);
      const auto model = make_decoder(golden.config);
      const NoGrad guard;
      const std::vector<float> whole = (*model)(decoder_ids()).to_vector();
      KeyValueCaches caches = model->make_caches(decoder_batch, decoder_length);
      std::vector<Tensor> parts;
      for (int64_t at = 0; at < decoder_length;) {  // 9 tokens, then 1 and 2 by turns
        const int64_t end = std::min(decoder_length, at + (at == 0 ? 9 : 1 + at % 2));
        parts.push_back(model->forward(slice(decoder_ids(), 1, at, end), &caches));
        at = end;
      }
      CHECK(largest_error(concat(parts, 1).to_vector(), whole) < 2e-5);
      CHECK_THROWS_AS(model->forward(slice(decoder_ids(), 1, 0, 1), &caches),
                      ShapeError);  // it is full
    }
  });
}

TEST_CASE("decoder: checkpoint segments keep less and change no bit") {
  on_each_device([] {
    for (const size_t i : {size_t{3}, decoders.size() - 1}) {
      DecoderConfig config = decoders[i].config;
      config.num_hidden_layers = 5;
      if (!config.slides.empty()) config.slides.resize(5, true);
      check_segments([&] { return make_decoder(config); }, decoder_ids, decoder_targets);
    }
  });
}

TEST_CASE("decoder: a dry run predicts the peak of training to the byte") {
  on_each_device([] {
    for (const int every : {0, 1}) {
      const auto device = Device::create(open_backend(default_device()->info().backend));
      exchange_default_device(device);
      const Forecast forecast = plan([=] { decoder_steps(every); });
      decoder_steps(every);
      CHECK(forecast.memory.peak == device->memory_report().peak);
      CHECK(forecast.memory.peak_by_purpose == device->memory_report().peak_by_purpose);
    }
  });
}

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("decoder: presets have the published numbers of parameters") {
  set_default_device(open_backend("cpu"));
  const std::pair<const char*, int64_t> published[] = {
      {"smollm2-135m", 134515008},  {"smollm2-360m", 361821120},  {"qwen2.5-0.5b", 494032768},
      {"qwen3-0.6b", 596049920},    {"qwen3-1.7b", 1720574976},   {"llama-3.2-1b", 1235814400},
      {"llama-3.2-3b", 3212749824}, {"llama-3.1-8b", 8030261248}, {"mistral-7b", 7241732096},
      {"gemma-3-1b", 999885952},    {"qwen3-8b", 8190735360},     {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    int64_t found = 0;
    dry_run(endless_dry(default_device()->backend()),
            [&] { found = Decoder(DecoderConfig::preset(name)).parameter_count(); });
    CHECK(found == count);
  }
  CHECK_THROWS_AS(DecoderConfig::preset("llama-2"), ValueError);
}

TEST_CASE("decoder: rope_scaling as published") {
  DecoderConfig c = DecoderConfig::preset("llama-3.2-1b");
  const std::vector<float> scaled = c.rotary().frequencies;
  c.rope_scaling = {};
  const std::vector<float> plain = c.rotary().frequencies;
  REQUIRE(scaled.size() == 32);
  CHECK(plain[31] == doctest::Approx(std::pow(500000.0, -31.0 / 32)));
  CHECK(scaled[0] == 1);
  CHECK(scaled[14] == plain[14]);  // a wavelength of 1956, below 8192 / 4
  CHECK(scaled[15] < plain[15]);
  CHECK(scaled[17] > 1.01 * plain[17] / 32);
  CHECK(scaled[18] == doctest::Approx(plain[18] / 32));  // 10090, above 8192
  CHECK(c.rotary().scale == 1);
  c.rope_scaling = {.type = "yarn", .factor = 4, .original_max_position_embeddings = 32768};
  CHECK(c.rotary().scale == doctest::Approx(0.1 * std::log(4.0) + 1));
  c.rope_scaling.attention_factor = 1.25;
  CHECK(c.rotary().scale == 1.25f);
  CHECK(c.rotary(true).scale == 1);
  CHECK(c.rotary(true).frequencies[16] == doctest::Approx(0.01));
}

TEST_CASE("decoder: a configuration knows the size of its model") {
  set_default_device(open_backend("reference"));
  for (const DecoderGolden& golden : decoders) {
    CAPTURE(golden.name);
    int64_t elements = 0;
    for (const Tensor& p : Decoder(golden.config).parameters())
      if (p.rank() > 1) elements += p.numel();
    CHECK(golden.config.matrix_elements() == elements);
  }
}

// The weights of one product fit f16, and its results do not.
TEST_CASE("decoder: logits that are not finite are an error that names the op and a dtype") {
  set_default_device(open_backend("cpu"));
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    CAPTURE(name(dtype));
    const auto model = make_decoder(decoders[0].config);
    for (const auto& [name, p] : model->named_parameters())
      if (name.ends_with("layers.1.mlp.down_proj.weight")) fill_(p, 3e4f);
    for (const auto& [name, p] : model->named_parameters())
      if (name.ends_with("layers.1.mlp.up_proj.weight")) fill_(p, 1);
    model->to(dtype);
    const auto texts = [&] { return model->generate(decoder_ids(), {.max_new_tokens = 3}); };
    const auto measured = [&] {
      const std::vector<int32_t> text = decoder_ids().to_ints();
      return perplexity(*model, text, 16).value;
    };
    if (dtype == DType::f16) {
      for (const auto& body : {std::function<void()>(texts), std::function<void()>(measured)}) {
        const std::string text = message_of<NumericsError>(body);
        CHECK(contains(text, "the logits must be finite"));
        CHECK(contains(text, "linear of 'model.layers.1.mlp.down_proj.weight' (op "));
        CHECK(contains(text, "was the first to overflow, in f16; bf16 has the range"));
      }
      GenerateOptions streamed{.max_new_tokens = 3};
      int received = 0;
      streamed.on_tokens = [&](auto) { return ++received, true; };
      CHECK_THROWS_AS(model->generate(decoder_ids(), streamed), NumericsError);
      CHECK(received == 0);
      CHECK(Tape::current()->is_empty());
    } else {
      CHECK(texts().size(1) == decoder_length + 3);
      CHECK(std::isfinite(measured()));
    }
  }
  // Weights that are damaged are said to be so, in any dtype.
  const auto model = make_decoder(decoders[0].config);
  for (const auto& [name, p] : model->named_parameters())
    if (name == "model.norm.weight") fill_(p, NAN);
  CHECK(contains(
      message_of<NumericsError>([&] { model->generate(decoder_ids(), {.max_new_tokens = 3}); }),
      "'model.norm.weight', which rms_norm"));
}

TEST_CASE("decoder: refuses configs and texts that do not fit") {
  set_default_device(open_backend("cpu"));
  const DecoderConfig good = decoders[0].config;
  const std::function<void(DecoderConfig&)> wrong[] = {
      [](DecoderConfig& c) { c.model_type = "gpt2"; },
      [](DecoderConfig& c) { c.vocab_size = 0; },
      [](DecoderConfig& c) { c.num_key_value_heads = 3; },
      [](DecoderConfig& c) { c.head_dim = 7; },
      [](DecoderConfig& c) { c.head_dim = 258; },
      [](DecoderConfig& c) { c.head_dim = 0, c.hidden_size = 34; },
      [](DecoderConfig& c) { c.hidden_act = "relu"; },
      [](DecoderConfig& c) { c.rope_theta = 0; },
      [](DecoderConfig& c) { c.rope_scaling.type = "dynamic"; },
      [](DecoderConfig& c) { c.rope_scaling.factor = 0; },
      [](DecoderConfig& c) { c.rope_scaling.high_freq_factor = 1; },
      [](DecoderConfig& c) { c.sliding_window = 4, c.slides = {true}; },
      [](DecoderConfig& c) { c.rms_norm_eps = NAN; }};
  for (size_t i = 0; i < std::size(wrong); ++i) {
    CAPTURE(i);
    DecoderConfig config = good;
    wrong[i](config);
    CHECK_THROWS_AS(Decoder{config}, ValueError);
  }
  Decoder model(good);
  CHECK_THROWS_AS(model(zeros({1, 33}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(model(zeros({17}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(model.set_checkpoint(-1), ValueError);
  KeyValueCaches caches = model.make_caches(decoder_batch, decoder_length);
  CHECK_THROWS_AS(model.forward(decoder_ids(), &caches), AutogradError);
  caches.pop_back();
  CHECK_THROWS_AS(model.forward(decoder_ids(), &caches), ShapeError);
  Tape::current()->clear();
}

TEST_SUITE_END();

}  // namespace rw::test
