// Decoders of Llama's kind, their files and adapters, and how well models predict texts.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>

#include "python/door/modules.h"

namespace door {

namespace {

rw::DecoderConfig decoder_config(const std::string& preset, const nb::kwargs& sizes) {
  rw::DecoderConfig c = rw::DecoderConfig::preset(preset);
  Fields("Decoder", sizes)("model_type", c.model_type)("vocab_size", c.vocab_size)(
      "hidden_size", c.hidden_size)("intermediate_size", c.intermediate_size)(
      "num_hidden_layers", c.num_hidden_layers)("num_attention_heads", c.num_attention_heads)(
      "num_key_value_heads", c.num_key_value_heads)("head_dim", c.head_dim)(
      "max_position_embeddings", c.max_position_embeddings)("rms_norm_eps", c.rms_norm_eps)(
      "rope_theta", c.rope_theta)("tie_word_embeddings", c.tie_word_embeddings)(
      "attention_bias", c.attention_bias)("mlp_bias", c.mlp_bias)("hidden_act", c.hidden_act)(
      "sliding_window", c.sliding_window)("initializer_range", c.initializer_range)
      .end();
  return c;
}

rw::Decoder* decoder_from_files(const std::filesystem::path& path, std::optional<DTypeGiven> dtype,
                                bool keep_blocks) {
  ensure_device();
  const rw::DecoderFiles files(path);
  const rw::init::SkipInit skip;
  const rw::DType works_in = dtype ? dtype->dtype : files.working_dtype();
  auto model = keep_blocks ? rw::make_decoder(files.config(), files.types(), works_in)
                           : std::make_unique<rw::Decoder>(files.config(), works_in);
  files.load(*model);
  return model.release();
}

void bind_adapters(nb::module_& m) {
  m.def(
      "_add_lora",
      [](rw::Module& model, int64_t rank, double alpha, float dropout, bool rank_stabilized,
         bool dora, std::vector<std::string> target_modules) {
        std::vector<std::string> names;
        for (const rw::NamedLora& a :
             rw::add_lora(model, {.rank = rank,
                                 .alpha = alpha,
                                 .dropout = dropout,
                                 .rank_stabilized = rank_stabilized,
                                 .dora = dora,
                                 .target_modules = std::move(target_modules)}))
          names.push_back(a.name);
        return names;
      },
      "model"_a, "rank"_a = 16, "alpha"_a = 32., "dropout"_a = 0, "rank_stabilized"_a = false,
      "dora"_a = false, "target_modules"_a = std::vector<std::string>());
  m.def("_merge_lora", &rw::merge_lora, "model"_a, Release());
  m.def("_remove_lora", &rw::remove_lora, "model"_a);
  m.def(
      "_save_adapter",
      [](const rw::Module& model, const std::filesystem::path& path, const std::string& base) {
        if (path.extension() != ".gguf") return rw::save_adapter(path, model, {.base_model = base});
        const auto* decoder = dynamic_cast<const rw::Decoder*>(&model);
        rw::check(decoder, "lora", "only adapters of a Decoder become a .gguf file{}", "");
        rw::save_adapter_gguf(path, *decoder);
      },
      "model"_a, "path"_a, "base_model"_a = "", Release());
  m.def(
      "_load_adapter",
      [](const std::filesystem::path& folder, rw::Module& model) {
        std::vector<std::string> names;
        for (const rw::NamedLora& a : rw::load_adapter(folder, model)) names.push_back(a.name);
        return names;
      },
      "folder"_a, "model"_a, Release());
}

}  // namespace

void bind_decoder(nb::module_& m) {
  nb::class_<rw::Decoder, rw::CausalLM>(
      m, "Decoder",
      "Decoders of Llama's kind: Llama, Mistral, SmolLM2, Qwen, Gemma. Sizes have the names of "
      "Hugging Face's config.json; those that are not given are the preset's.")
      .def(
          "__init__",
          [](rw::Decoder* self, const std::string& preset, DTypeGiven dtype, nb::kwargs sizes) {
            ensure_device();
            new (self) rw::Decoder(decoder_config(preset, sizes), dtype);
          },
          "preset"_a = "tiny", "dtype"_a = rw::DType::f32, "sizes"_a)
      .def_static("from_files", &decoder_from_files, "path"_a, "dtype"_a = nb::none(),
                  "keep_blocks"_a = false, nb::rv_policy::take_ownership, Release(),
                  "The model of a folder of Hugging Face's or of a .gguf file. Quantised matrices "
                  "become floats, or with keep_blocks stay in their blocks, frozen: adapters "
                  "(rw.lora) train then.")
      .def(
          "save",
          [](const rw::Decoder& d, const std::filesystem::path& folder, DTypeGiven dtype) {
            rw::save_decoder(folder, d, {.dtype = dtype});
          },
          "folder"_a, "dtype"_a = rw::DType::f32, Release(),
          "Writes a folder that transformers reads.")
      .def("set_mlp_rows", &rw::Decoder::set_mlp_rows, "rows"_a,
           "Each MLP takes at most so many tokens at a time (0: all), in a checkpoint segment.");
  m.def(
      "perplexity",
      [](rw::CausalLM& model, const std::vector<int32_t>& text, int64_t context,
         std::optional<int32_t> bos) { return rw::perplexity(model, text, context, bos).value; },
      "model"_a, "text"_a, "context"_a, "bos"_a = nb::none(), Release(),
      "How well a model predicts the tokens of a text, as llama.cpp measures it: in windows of "
      "`context` tokens, of which the second half counts.");
  bind_adapters(m);
}

}  // namespace door
