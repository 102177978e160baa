// Decoders in GGUF files: names, layouts and metadata as llama.cpp has them, and files that lie.
#include <doctest/doctest.h>

#include <cmath>

#include "io/models/decoder.h"
#include "io/models/decoder/gguf.h"
#include "ops/ops.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

// A model's configuration after it was written into a file and read back.
DecoderConfig through_gguf(const DecoderConfig& config) {
  const TemporaryFolder folder;
  save_decoder_gguf(folder.path / "m.gguf", Decoder(config), GgufType::f32);
  return read_decoder_config(folder.path / "m.gguf");
}

std::vector<float> gguf_values(const GgufFile& file, const std::string& name) {
  const Tensor target = empty(file.tensors().at(name).shape);
  file.read(name, target);
  return target.to_vector();
}

Tensor decoder_parameter(const Decoder& model, const std::string& name) {
  for (const NamedTensor& t : model.named_parameters())
    if (t.name == name) return t.tensor.detach();
  FAIL("no parameter " << name);
  return {};
}

std::string gguf_refusal(auto&& body) {
  try {
    body();
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

void check_contains(const std::string& message, const std::string& part) {
  CAPTURE(message);
  CAPTURE(part);
  CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("decoder gguf: a file is read back, of each family and type") {
  set_default_device(open_backend("reference"));
  for (const DecoderConfig& config : small_decoders()) {
    CAPTURE(config.model_type);
    const TemporaryFolder folder;
    const fs::path path = folder.path / "m.gguf";
    Decoder model(config), again(config);
    save_decoder_gguf(path, model, GgufType::f32, {{"general.name", std::string("small")}});
    const DecoderConfig found = read_decoder_config(path);
    CHECK(found.model_type == config.model_type);
    CHECK(found.head_dim == config.head_dim);
    CHECK(found.rms_norm_eps == config.rms_norm_eps);
    CHECK(found.rope_theta == config.rope_theta);
    CHECK(found.rope_scaling == config.rope_scaling);
    CHECK(found.sliding_window == config.sliding_window);
    CHECK(found.slides == config.slides);
    CHECK(found.attention_bias == config.attention_bias);
    CHECK(found.tie_word_embeddings == config.tie_word_embeddings);
    CHECK(found.hidden_act == config.hidden_act);
    load_decoder(path, again);
    if (!config.is_gemma()) CHECK(all_values(again) == all_values(model));
    Decoder other(found);
    load_decoder(path, other);
    const std::vector<float> exact = logits_of(model);
    const auto check_close = [&](Decoder& got, double tolerance) {
      const std::vector<float> logits = logits_of(got);
      double error = 0, size = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        error += (logits[i] - exact[i]) * (logits[i] - exact[i]);
        size += exact[i] * exact[i];
      }
      CHECK(std::sqrt(error / size) < tolerance);
    };
    check_close(other, 1e-5);
    for (const auto& [type, tolerance] :
         {std::pair{GgufType::f16, 0.005}, {GgufType::bf16, 0.1}, {GgufType::q8_0, 0.1}}) {
      save_decoder_gguf(path, model, type);
      const GgufFile file(path);
      for (const auto& [name, stored] : file.tensors()) {
        CAPTURE(name);
        const bool is_matrix = stored.shape.rank() == 2;
        CHECK(stored.type->number == static_cast<uint32_t>(is_matrix ? type : GgufType::f32));
      }
      load_decoder(path, other);
      check_close(other, tolerance);
    }
  }
}

TEST_CASE("decoder gguf: metadata have llama.cpp's names and types") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  save_decoder_gguf(path, Decoder(small_decoder("gemma3_text")), GgufType::q8_0,
                    {{"tokenizer.ggml.bos_token_id", uint32_t{4}},
                     {"tokenizer.ggml.eos_token_id", uint32_t{5}},
                     {"tokenizer.ggml.eot_token_id", uint32_t{6}},
                     {"general.architecture", std::string("wrong")}});
  const GgufFile file(path);
  CHECK(file.text("general.architecture") == "gemma3");
  CHECK(file.metadata().at("general.file_type") == GgufValue(uint32_t{7}));
  CHECK(file.metadata().at("general.quantization_version") == GgufValue(uint32_t{2}));
  CHECK(file.metadata().at("gemma3.block_count") == GgufValue(uint32_t{7}));
  CHECK(file.metadata().at("gemma3.rope.freq_base") == GgufValue(1e6f));
  CHECK(file.metadata().at("gemma3.rope.freq_base_swa") == GgufValue(1e4f));
  CHECK(file.metadata().at("gemma3.attention.sliding_window") == GgufValue(uint32_t{5}));
  CHECK(!file.has("gemma3.attention.sliding_window_pattern"));
  CHECK(file.tensors().contains("blk.6.post_attention_norm.weight"));
  CHECK(file.tensors().contains("blk.6.ffn_norm.weight"));
  CHECK(file.tensors().contains("blk.6.post_ffw_norm.weight"));
  CHECK(!file.tensors().contains("output.weight"));
  CHECK(DecoderFiles(path).special_tokens() == SpecialTokens{.bos = 4, .eos = {5, 6}});
}

TEST_CASE("decoder gguf: rows of q and k of llama lie in pairs, and of no other") {
  set_default_device(open_backend("reference"));
  for (const char* type : {"llama", "mistral", "qwen2"}) {
    CAPTURE(type);
    const TemporaryFolder folder;
    DecoderConfig config = small_decoder(type);
    config.attention_bias = true;
    if (config.model_type == "mistral") config.attention_bias = false;
    const Decoder model(config);
    const Tensor bias_values = tensor(some_values(32), {32});
    if (config.attention_bias)
      decoder_parameter(model, "model.layers.1.self_attn.k_proj.bias").copy_(bias_values);
    save_decoder_gguf(folder.path / "m.gguf", model, GgufType::f32);
    const GgufFile file(folder.path / "m.gguf");
    // convert_hf_to_gguf.py: reshape(heads, 2, rows / heads / 2, columns).swapaxes(1, 2).
    const auto expected = [&](const std::string& name, int64_t heads, int64_t columns) {
      std::vector<float> rows =
          decoder_parameter(model, "model.layers.1.self_attn." + name).to_vector();
      if (config.model_type == "qwen2") return rows;
      std::vector<float> turned;
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t pair = 0; pair < 8; ++pair)
          for (int64_t half = 0; half < 2; ++half)
            for (int64_t column = 0; column < columns; ++column)
              turned.push_back(
                  rows[static_cast<size_t>((head * 16 + half * 8 + pair) * columns + column)]);
      return turned;
    };
    CHECK(gguf_values(file, "blk.1.attn_q.weight") == expected("q_proj.weight", 4, 64));
    CHECK(gguf_values(file, "blk.1.attn_k.weight") == expected("k_proj.weight", 2, 64));
    CHECK(gguf_values(file, "blk.1.attn_v.weight") ==
          decoder_parameter(model, "model.layers.1.self_attn.v_proj.weight").to_vector());
    if (config.attention_bias)
      CHECK(gguf_values(file, "blk.1.attn_k.bias") == expected("k_proj.bias", 2, 1));
  }
}

TEST_CASE("decoder gguf: norms of Gemma are stored with their offset") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Decoder model(small_decoder("gemma"));
  decoder_parameter(model, "model.norm.weight").copy_(full({64}, 0.5f));
  save_decoder_gguf(folder.path / "m.gguf", model, GgufType::f16);
  CHECK(gguf_values(GgufFile(folder.path / "m.gguf"), "output_norm.weight") ==
        std::vector<float>(64, 1.5f));
  Decoder again(model.config());
  load_decoder(folder.path / "m.gguf", again);
  CHECK(decoder_parameter(again, "model.norm.weight").to_vector() == std::vector<float>(64, 0.5f));
}

TEST_CASE("decoder gguf: rotary embeddings of Llama 3 are found from their factors") {
  set_default_device(open_backend("reference"));
  for (const double theta : {10000.0, 500000.0})
    for (const int64_t head_dim : {16, 64, 128})
      for (const RopeScaling& scaling :
           {RopeScaling{.type = "llama3", .factor = 8, .original_max_position_embeddings = 8192},
            RopeScaling{.type = "llama3", .factor = 32, .original_max_position_embeddings = 8192},
            RopeScaling{.type = "llama3",
            .factor = 3,
            .high_freq_factor = 6,
            .original_max_position_embeddings = 1000}}) {
        CAPTURE(theta);
        CAPTURE(head_dim);
        CAPTURE(scaling.factor);
        DecoderConfig config = small_decoder("llama");
        config.num_hidden_layers = 1;
        config.rope_theta = theta;
        config.head_dim = head_dim;
        config.max_position_embeddings = 65536;
        config.rope_scaling = scaling;
        const std::vector<float> expected = config.rotary().frequencies;
        const DecoderConfig found = through_gguf(config);
        const std::vector<float> got = found.rotary().frequencies;
        for (size_t i = 0; i < expected.size(); ++i)
          CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-5));
        // The numbers themselves are there, if several frequencies lie between the two.
        if (head_dim == 128) CHECK(found.rope_scaling == scaling);
      }
}

TEST_CASE("decoder gguf: other rotary embeddings, windows and biases are in the metadata") {
  set_default_device(open_backend("reference"));
  DecoderConfig config = small_decoder("qwen3");
  config.rope_scaling = {.type = "linear", .factor = 2.5};
  CHECK(through_gguf(config).rope_scaling == config.rope_scaling);
  config.rope_scaling = {.type = "yarn",
                         .factor = 4,
                         .beta_fast = 16,
                         .beta_slow = 2,
                         .attention_factor = 1.25,
                         .original_max_position_embeddings = 16};
  config.sliding_window = 7;
  config.slides = {false, true};
  CHECK(through_gguf(config).rope_scaling == config.rope_scaling);
  config.rope_scaling.original_max_position_embeddings = 0;  // those of the model
  CHECK(through_gguf(config).rope_scaling.original_max_position_embeddings == 64);
  CHECK(through_gguf(config).slides == config.slides);
  DecoderConfig llama = small_decoder("llama");
  llama.attention_bias = llama.mlp_bias = true;
  CHECK(through_gguf(llama).attention_bias);
  CHECK(through_gguf(llama).mlp_bias);
  DecoderConfig gemma = small_decoder("gemma3_text");
  gemma.slides = {true, false, true, false, true, false, true};
  CHECK(through_gguf(gemma).slides == gemma.slides);
  gemma.query_pre_attn_scalar = 20;
  CHECK_THROWS_AS(through_gguf(gemma), ValueError);
  // llama.cpp knows an activation by the architecture.
  config = small_decoder("llama");
  config.hidden_act = "gelu_pytorch_tanh";
  CHECK_THROWS_AS(through_gguf(config), ValueError);
  config = small_decoder("gemma");
  config.hidden_act = "silu";
  CHECK_THROWS_AS(through_gguf(config), ValueError);
}

TEST_CASE("decoder gguf: rows that are no whole blocks are stored in 16 bits") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  DecoderConfig config = small_decoder("llama");
  config.intermediate_size = 40;
  save_decoder_gguf(folder.path / "m.gguf", Decoder(config), GgufType::q8_0);
  const GgufFile file(folder.path / "m.gguf");
  CHECK(file.tensors().at("blk.0.ffn_down.weight").type->name == "F16");
  CHECK(file.tensors().at("blk.0.ffn_up.weight").type->name == "Q8_0");
}

TEST_CASE("decoder gguf: metadata that lie, and models that Decoder is not") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  const DecoderConfig config = small_decoder("llama");
  const Decoder model(config);
  const GgufMetadata good = decoder_metadata(config, GgufType::f32);
  std::vector<GgufSource> tensors = decoder_tensors(model, config, GgufType::f32);
  const auto refused = [&](const std::string& key, const GgufValue& value, const char* why) {
    GgufMetadata metadata = good;
    metadata[key] = value;
    write_gguf(path, tensors, metadata);
    check_contains(gguf_refusal([&] { read_decoder_config(path); }), why);
  };
  refused("general.architecture", std::string("mamba"), "got \"mamba\"");
  refused("general.architecture", uint32_t{1}, "must be a text");
  refused("llama.block_count", uint32_t{1'000'000'000}, "[1, 10000], got 1000000000");
  refused("llama.block_count", uint32_t{0}, "got 0");
  refused("llama.embedding_length", -1.0f, "whole number");
  refused("llama.attention.head_count", GgufList(std::vector<int32_t>{4, 4, 4}), "got a list");
  refused("llama.attention.head_count", GgufList(std::vector<float>{4, 4}), "got a list");
  refused("llama.attention.head_count", GgufList(std::vector<int32_t>{4, 4}), "accepted");
  refused("llama.attention.head_count_kv", GgufList(std::vector<uint32_t>{2, 4}),
          "llama.attention.head_count_kv must be the same in all layers");
  refused("llama.feed_forward_length", GgufList(std::vector<int32_t>{0, 0}), "[1, 1048576]");
  refused("llama.attention.head_count_kv", uint32_t{3}, "must divide num_attention_heads");
  refused("llama.attention.value_length", uint32_t{32}, "must be the size of heads, 16, got 32");
  refused("llama.rope.dimension_count", uint32_t{8}, "must be the size of heads, 16, got 8");
  refused("llama.expert_count", uint32_t{8}, "expert_count");
  refused("llama.expert_count", uint32_t{0}, "accepted");
  refused("split.count", uint16_t{3}, "got a part of one");
  refused("llama.attention.layer_norm_rms_epsilon", NAN, "got nan");
  refused("llama.attention.sliding_window_pattern", uint32_t{2}, "accepted");  // without a window
  GgufMetadata missing = good;
  missing.erase("llama.context_length");
  write_gguf(path, tensors, missing);
  check_contains(gguf_refusal([&] { read_decoder_config(path); }), "no \"llama.context_length\"");

  const auto without_factors = [&] {
    std::vector<GgufSource> some = tensors;
    some.pop_back();
    return some;
  };
  REQUIRE(tensors.back().name == "rope_freqs.weight");
  for (const Tensor& factors : {full({7}, 1), tensor({1, 1, 1, 2, 1, 8, 8, 8}, {8}), full({8}, 0),
                                full({8}, NAN), full({8}, INFINITY), full({8}, -1)}) {
    std::vector<GgufSource> wrong = without_factors();
    wrong.push_back({"rope_freqs.weight", factors, GgufType::f32});
    write_gguf(path, wrong, good);
    check_contains(gguf_refusal([&] { read_decoder_config(path); }), "rope_freqs.weight must");
  }
  tensors = without_factors();
  write_gguf(path, tensors, good);
  CHECK(read_decoder_config(path).rope_scaling == RopeScaling{});
  refused("llama.rope.scale_linear", 2.5f, "accepted");
  CHECK(read_decoder_config(path).rope_scaling == RopeScaling{.type = "linear", .factor = 2.5});
  refused("llama.rope.scaling.type", std::string("longrope"), "got \"longrope\"");
  refused("llama.rope.scaling.type", std::string("linear"), "no \"llama.rope.scaling.factor\"");
  tensors.erase(tensors.begin());
  write_gguf(path, tensors, good);
  check_contains(gguf_refusal([&] { read_decoder_config(path); }), "a matrix token_embd.weight");
}

TEST_CASE("decoder gguf: tensors that do not agree leave the model as it is") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  const DecoderConfig config = small_decoder("qwen3");
  const Decoder source(config);
  Decoder model(config);
  const std::vector<float> before = all_values(model);
  const auto refused = [&](auto&& change, const char* why) {
    std::vector<GgufSource> tensors = decoder_tensors(source, config, GgufType::f32);
    change(tensors);
    write_gguf(path, tensors, decoder_metadata(config, GgufType::f32));
    check_contains(gguf_refusal([&] { load_decoder(path, model); }), why);
    CHECK(all_values(model) == before);
  };
  refused([](auto& t) { t.erase(t.begin() + 3); }, "has no tensor blk.0.attn_");
  refused([](auto& t) { t.push_back({"more", full({1}, 1), GgufType::f32}); }, "\"more\", which");
  refused([](auto& t) { t[2].tensor = full({4, 64}, 1), t[2].shape = {}; }, "got (4, 64)");
  refused([](auto& t) { t[2].shape = Shape{32, 128}; }, "got (32, 128)");
}

TEST_SUITE_END();

}  // namespace rw::test
