// The shapes of decoders in config.json: defaults, both spellings, and what is refused.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "io/models/decoder/json.h"

namespace rw::test {

namespace {

using nlohmann::json;

DecoderConfig parse_config(const json& value) {
  return parse_decoder_config(value, "config.json");
}

// The same with some keys changed; null is a value here.
json changed(json base, const json& changes) {
  for (const auto& [key, value] : changes.items()) base[key] = value;
  return base;
}

// The message with which a configuration is refused.
std::string config_refusal(const json& value) {
  try {
    parse_config(value);
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

DecoderConfig through_json(const DecoderConfig& config) {
  return parse_config(json::parse(decoder_config_json(config).dump()));
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("decoder config: absent keys are those of the classes of transformers") {
  const DecoderConfig llama = parse_config({{"model_type", "llama"}});
  CHECK(llama == DecoderConfig{.model_type = "llama",
                               .vocab_size = 32000,
                               .hidden_size = 4096,
                               .intermediate_size = 11008,
                               .num_hidden_layers = 32,
                               .num_attention_heads = 32,
                               .num_key_value_heads = 32});
  const DecoderConfig mistral = parse_config({{"model_type", "mistral"}});
  CHECK(mistral.num_key_value_heads == 8);
  CHECK(mistral.intermediate_size == 14336);
  CHECK(mistral.max_position_embeddings == 131072);
  CHECK(mistral.sliding_window == 4096);
  CHECK(mistral.slides.empty());
  const DecoderConfig qwen2 = parse_config({{"model_type", "qwen2"}});
  CHECK(qwen2.vocab_size == 151936);
  CHECK(qwen2.intermediate_size == 22016);
  CHECK(qwen2.attention_bias);
  CHECK(qwen2.sliding_window == 0);
  CHECK(qwen2.heads_dim() == 128);
  const DecoderConfig qwen3 = parse_config({{"model_type", "qwen3"}, {"num_attention_heads", 64}});
  CHECK(qwen3.head_dim == 128);
  CHECK(qwen3.num_key_value_heads == 32);
  CHECK(!qwen3.attention_bias);
  const DecoderConfig gemma = parse_config({{"model_type", "gemma"}});
  CHECK(gemma.head_dim == 256);
  CHECK(gemma.hidden_size == 3072);
  CHECK(gemma.tie_word_embeddings);
  CHECK(gemma.hidden_act == "gelu_pytorch_tanh");
  const DecoderConfig gemma3 = parse_config({{"model_type", "gemma3_text"}});
  CHECK(gemma3.rope_theta == 1e6);
  CHECK(gemma3.rope_local_base_freq == 1e4);
  CHECK(gemma3.query_pre_attn_scalar == 256);
  CHECK(gemma3.has_window(0));
  CHECK(!gemma3.has_window(5));
  CHECK(gemma3.slides.size() == 26);
}

TEST_CASE("decoder config: null stands for a default that depends on others") {
  const DecoderConfig c = parse_config({{"model_type", "llama"},
                                        {"num_attention_heads", 16},
                                        {"num_key_value_heads", nullptr},
                                        {"head_dim", nullptr},
                                        {"rope_scaling", nullptr}});
  CHECK(c.num_key_value_heads == 16);
  CHECK(c.heads_dim() == 256);
  CHECK(parse_config({{"model_type", "llama"}, {"num_attention_heads", 16}}).num_key_value_heads ==
        16);
  CHECK(parse_config({{"model_type", "mistral"}, {"sliding_window", nullptr}}).sliding_window == 0);
  CHECK(parse_config({{"model_type", "qwen3"}, {"head_dim", nullptr}, {"hidden_size", 2048}})
            .heads_dim() == 64);
}

TEST_CASE("decoder config: other words for the same") {
  const auto act = [](const char* type, const char* word) {
    return parse_config({{"model_type", type}, {"hidden_act", word}}).hidden_act;
  };
  CHECK(act("llama", "swish") == "silu");
  for (const char* word : {"gelu_new", "gelu_fast", "gelu_python_tanh", "gelu_pytorch_tanh"})
    CHECK(act("qwen2", word) == "gelu_pytorch_tanh");
  CHECK(act("gemma", "gelu") == "gelu_pytorch_tanh");  // as transformers reads the first release
  const json lists = {{"model_type", "llama"},
                      {"hidden_size", 64},
                      {"num_attention_heads", {8, 8, 8}},
                      {"num_key_value_heads", {4, 4, 4}},
                      {"intermediate_size", {96, 96}}};
  CHECK(parse_config(lists).num_attention_heads == 8);
  CHECK(parse_config(lists).num_key_value_heads == 4);
  CHECK(parse_config(lists).intermediate_size == 96);
  const std::string refusal = config_refusal(changed(lists, {{"num_key_value_heads", {4, 2}}}));
  CAPTURE(refusal);
  CHECK(refusal.find("\"num_key_value_heads\" of 'config.json' must be the same in all layers") !=
        std::string::npos);
}

TEST_CASE("decoder config: rotary embeddings in the spellings of transformers 4 and 5") {
  const json base = {{"model_type", "llama"}, {"max_position_embeddings", 131072}};
  const RopeScaling llama3{.type = "llama3",
                           .factor = 32,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_position_embeddings = 8192};
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 32.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192}};
  const DecoderConfig old =
      parse_config(changed(base, {{"rope_theta", 5e5}, {"rope_scaling", scaling}}));
  CHECK(old.rope_theta == 5e5);
  CHECK(old.rope_scaling == llama3);
  scaling["rope_theta"] = 5e5;
  CHECK(parse_config(changed(base, {{"rope_parameters", scaling}})) == old);
  const json linear = {{"type", "linear"}, {"factor", 4}};  // of transformers before 4.43
  CHECK(parse_config(changed(base, {{"rope_scaling", linear}})).rope_scaling ==
        RopeScaling{.type = "linear", .factor = 4});
  const json plain = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  CHECK(parse_config(changed(base, {{"rope_parameters", plain}})).rope_theta == 2e4);
  CHECK(parse_config(changed(base, {{"rope_parameters", plain}})).rope_scaling == RopeScaling{});
  const json yarn = {{"rope_type", "yarn"},     {"factor", 4.0},
                     {"beta_fast", 16},         {"beta_slow", 2},
                     {"attention_factor", 1.5}, {"original_max_position_embeddings", 32768}};
  CHECK(parse_config(changed(base, {{"rope_scaling", yarn}})).rope_scaling ==
        RopeScaling{.type = "yarn",
                    .factor = 4,
                    .beta_fast = 16,
                    .beta_slow = 2,
                    .attention_factor = 1.5,
                    .original_max_position_embeddings = 32768});
  const json gemma = {
      {"model_type", "gemma3_text"},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}},
        {"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 2e6}}}}}};
  const DecoderConfig nested = parse_config(gemma);
  CHECK(nested.rope_theta == 2e6);
  CHECK(nested.rope_local_base_freq == 2e4);
  CHECK(nested.rope_scaling == RopeScaling{.type = "linear", .factor = 8});
  CHECK(parse_config({{"model_type", "gemma3_text"},
                      {"rope_theta", 2e6},
                      {"rope_local_base_freq", 2e4},
                      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}}) == nested);
}

TEST_CASE("decoder config: which layers have a window") {
  const json qwen = {{"model_type", "qwen3"},
                     {"num_hidden_layers", 4},
                     {"use_sliding_window", true},
                     {"sliding_window", 64},
                     {"max_window_layers", 3}};
  CHECK(parse_config(qwen).slides == std::vector<bool>{false, false, false, true});
  CHECK(parse_config(qwen).sliding_window == 64);
  CHECK(parse_config(changed(qwen, {{"use_sliding_window", false}})).sliding_window == 0);
  const char *full = "full_attention", *slides = "sliding_attention";
  CHECK(parse_config(changed(qwen, {{"layer_types", {full, slides, slides, full}}})).slides ==
        std::vector<bool>{false, true, true, false});
  const json gemma = {{"model_type", "gemma3_text"},
                      {"num_hidden_layers", 4},
                      {"sliding_window", 16},
                      {"sliding_window_pattern", 2}};
  CHECK(parse_config(gemma).slides == std::vector<bool>{true, false, true, false});
}

TEST_CASE("decoder config: what is written is read back") {
  for (const char* name :
       {"tiny", "smollm2-135m", "smollm2-360m", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-1.7b",
        "qwen3-14b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "mistral-7b", "gemma-3-1b"}) {
    CAPTURE(name);
    const DecoderConfig preset = DecoderConfig::preset(name);
    DecoderConfig expected = preset;  // all that a file says of it
    expected.head_dim = preset.heads_dim();
    if (expected.query_pre_attn_scalar == 0 && preset.model_type == "gemma3_text")
      expected.query_pre_attn_scalar = static_cast<double>(preset.heads_dim());
    CHECK(through_json(preset) == expected);
    CHECK(through_json(through_json(preset)) == through_json(preset));
  }
  DecoderConfig yarn = DecoderConfig::preset("qwen3-0.6b");
  yarn.rope_scaling = {.type = "yarn",
                       .factor = 4,
                       .beta_fast = 16,
                       .beta_slow = 2,
                       .attention_factor = 1.25,
                       .original_max_position_embeddings = 1024};
  yarn.attention_bias = true;
  yarn.sliding_window = 128;
  yarn.slides.assign(28, false);
  yarn.slides[2] = true;
  CHECK(through_json(yarn) == yarn);
  DecoderConfig llama = DecoderConfig::preset("llama-3.2-1b");
  llama.head_dim = 32;
  llama.attention_bias = llama.mlp_bias = true;
  CHECK(through_json(llama) == llama);
  CHECK(decoder_config_json(llama)["architectures"][0] == "LlamaForCausalLM");
  CHECK(decoder_config_json(yarn)["architectures"][0] == "Qwen3ForCausalLM");
}

TEST_CASE("decoder config: what a class of transformers does not have is not written") {
  const auto refused = [](const char* preset, auto&& change) {
    DecoderConfig c = DecoderConfig::preset(preset);
    change(c);
    CHECK_THROWS_AS(decoder_config_json(c), ValueError);
  };
  refused("llama-3.2-1b", [](DecoderConfig& c) { c.sliding_window = 64; });
  refused("mistral-7b", [](DecoderConfig& c) { c.attention_bias = true; });
  refused("mistral-7b", [](DecoderConfig& c) { c.slides.assign(32, false), c.slides[1] = true; });
  refused("qwen2.5-0.5b", [](DecoderConfig& c) { c.attention_bias = false; });
  refused("qwen3-0.6b", [](DecoderConfig& c) { c.mlp_bias = true; });
  refused("qwen3-0.6b", [](DecoderConfig& c) { c.query_pre_attn_scalar = 77; });
  refused("qwen3-0.6b", [](DecoderConfig& c) { c.num_key_value_heads = 3; });
}

TEST_CASE("decoder config: configurations that lie, and models that Decoder is not") {
  const json llama = {{"model_type", "llama"}, {"hidden_size", 64}, {"num_attention_heads", 4}};
  CHECK(config_refusal(llama) == "accepted");
  const auto refused = [](const json& value, const char* why) {
    const std::string message = config_refusal(value);
    CAPTURE(message);
    CAPTURE(std::string(why));
    CHECK(message.find(why) != std::string::npos);
    CHECK(message.find("config.json") != std::string::npos);
  };
  refused({}, "got \"none\"");
  refused({{"model_type", 3}}, "model_type of 'config.json' must be a text, got 3");
  for (const char* other : {"gemma2", "mixtral", "gpt2", "qwen3_moe"})
    refused({{"model_type", other}}, other);
  const auto with = [&](const char* key, const json& value) {
    return changed(llama, {{key, value}});
  };
  refused(with("num_hidden_layers", 1'000'000'000), "in [1, 10000], got 1000000000");
  refused(with("num_hidden_layers", 2.5), "whole number");
  refused(with("num_hidden_layers", -1), "got -1");
  refused(with("hidden_size", "64"), "got \"64\"");
  refused(with("vocab_size", 18446744073709551615u), "got 18446744073709551615");
  refused(with("num_key_value_heads", 3), "must divide num_attention_heads, got 3 and 4");
  refused(with("hidden_size", 62), "must divide hidden_size");
  refused(with("head_dim", 7), "head_dim must be even");
  refused(with("rms_norm_eps", "1e-6"), "rms_norm_eps");
  refused(with("hidden_act", "gelu"), "got 'gelu'");
  refused(with("hidden_act", json::array()), "must be a text");
  refused(with("tie_word_embeddings", 1), "must be true or false, got 1");
  refused(with("attention_dropout", 0.1), "attention_dropout 0.1");
  refused(with("partial_rotary_factor", 0.5), "partial_rotary_factor 0.5");
  refused(with("quantization_config", {{"bits", 4}}), "bitsandbytes' with load_in_4bit");
  refused(with("quantization_config", 4), "bitsandbytes' with load_in_4bit");
  refused(with("rope_theta", 0.5), "[1, ");
  refused(with("rope_scaling", 4), "must be an object, got 4");
  const auto scaled = [&](const json& scaling) { return with("rope_scaling", scaling); };
  refused(scaled({{"rope_type", "longrope"}, {"factor", 4}}), "got \"longrope\"");
  refused(scaled({{"rope_type", "dynamic"}, {"factor", 4}}), "linear, llama3 or yarn");
  refused(scaled({{"rope_type", "linear"}}), "need a factor");
  refused(scaled({{"rope_type", "linear"}, {"factor", -1}}), "got -1");
  refused(scaled({{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}}), "truncate false");
  refused(scaled({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 1}}), "mscale 1");
  refused(scaled({{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}),
          "partial_rotary_factor 0.25");
  refused(scaled({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 9}}),
          "above low_freq_factor");
  refused(with("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}),
          "only gemma3_text can");
  const json gemma = {{"model_type", "gemma3_text"}, {"num_hidden_layers", 2}};
  refused(changed(gemma, {{"layer_types", {"full_attention"}}}), "a list for 2 layers");
  refused(changed(gemma, {{"layer_types", {"full_attention", "chunked_attention"}}}),
          "got \"chunked_attention\"");
  refused(changed(gemma, {{"layer_types", {{"a", 1}, {"b", 2}}}}), "must be");
  refused(changed(gemma, {{"final_logit_softcapping", 30.0}}), "final_logit_softcapping 30.0");
  refused(changed(gemma, {{"use_bidirectional_attention", true}}), "causal");
  refused(changed(gemma, {{"rope_parameters",
                           {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}}),
          "plain rotary embeddings");
}

TEST_SUITE_END();

}  // namespace rw::test
