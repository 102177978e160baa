// Folders of decoders in NF4, in the layout of bitsandbytes; test_nf4.cpp holds its bits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "core/blocks/nf4.h"
#include "io/formats/safetensors.h"
#include "io/models/config_file.h"
#include "io/models/decoder.h"
#include "io/models/decoder/gguf.h"
#include "io/models/decoder/json.h"
#include "io/models/decoder/nf4.h"
#include "ops/operators.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

// Rows of whole blocks of 64.
DecoderConfig nf4_decoder(const std::string& type) {
  DecoderConfig c = small_decoder(type);
  c.intermediate_size = 128;
  return c;
}

Tensor nf4_bytes(std::span<const std::byte> bytes) {
  std::vector<uint8_t> values(bytes.size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  Tensor t = empty({std::ssize(values)}, DType::u8);
  t.copy_from(std::span<const uint8_t>(values));
  return t;
}

StateDict tensors_in_nf4(const Decoder& model) {
  const NoGrad guard;
  StateDict tensors;
  for (const NamedTensor& parameter : state_dict(model)) {
    if (!parameter.name.ends_with("_proj.weight")) {
      tensors.push_back(parameter);
      continue;
    }
    for (NamedTensor& part : nf4_tensors(parameter.name, parameter.tensor, DType::bf16))
      tensors.push_back(std::move(part));
  }
  return tensors;
}

void write_text(const fs::path& file, const std::string& text) {
  AtomicFile out(file);
  out.write(text);
  out.commit();
}

void write_nf4_folder(const fs::path& folder, const DecoderConfig& config,
                      const StateDict& tensors) {
  nlohmann::ordered_json json = decoder_config_json(config);
  json["torch_dtype"] = "bfloat16";
  json["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  write_text(folder / "config.json", json.dump());
  write_safetensors(folder / "model.safetensors", tensors);
}

std::unique_ptr<Decoder> in_nf4(const fs::path& folder, DType dtype = DType::f32) {
  const DecoderFiles files(folder);
  auto model = make_decoder(files.config(), files.types(), dtype);
  files.load(*model);
  return model;
}

double nf4_distance(const std::vector<float>& x, const std::vector<float>& y) {
  REQUIRE(x.size() == y.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  return error == 0 ? 0 : std::sqrt(error / size);
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("decoder nf4: codes and scales are those of the files, in blocks and as floats") {
  for (const char* backend : {"reference", "cpu"})
    for (const char* family : {"llama", "qwen2", "qwen3", "gemma"}) {
      CAPTURE(family);
      set_default_device(open_backend(backend));
      const TemporaryFolder folder;
      const Decoder model(nf4_decoder(family));
      write_nf4_folder(folder.path, model.config(), tensors_in_nf4(model));
      const DecoderFiles files(folder.path);
      CHECK(files.is_quantised());
      CHECK(files.types() == nf4_types(model.config()));
      CHECK(files.working_dtype() == DType::bf16);
      CHECK(!files.holds_matrices_as(DType::bf16));
      fs::create_directory(folder / "plan");
      fs::copy_file(folder / "config.json", folder / "plan/config.json");
      CHECK(!DecoderFiles(folder / "plan").is_quantised());
      const auto blocks = in_nf4(folder.path);
      const auto matrices = all_blocks(*blocks);
      CHECK(matrices.size() == 14);
      Decoder floats(model.config());
      load_decoder(folder.path, floats);
      const NoGrad guard;
      for (const auto& [name, parameter] : floats.named_parameters())
        if (matrices.contains(name))
          CHECK(dequantize(*matrices.at(name)).to_vector() == parameter.to_vector());
      CHECK(nf4_distance(logits_of(floats), logits_of(*blocks)) < 1e-5);
      CHECK(nf4_distance(logits_of(floats), logits_of(*in_nf4(folder.path, DType::bf16))) < 0.1);
      // The rounded weights are near to the saved ones.
      const StateDict before = state_dict(model), after = state_dict(floats);
      for (size_t i = 0; i < before.size(); ++i) {
        const bool is_rounded = matrices.contains(before[i].name);
        const double error =
            nf4_distance(before[i].tensor.to_vector(), after[i].tensor.to_vector());
        CHECK((is_rounded ? error > 0.02 && error < 0.12 : error == 0));
      }
    }
}

TEST_CASE("decoder nf4: tensors in several files") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const Decoder model(nf4_decoder("llama"));
  const StateDict tensors = tensors_in_nf4(model);
  write_nf4_folder(folder.path, model.config(), tensors);
  const std::vector<float> whole = logits_of(*in_nf4(folder.path));
  // Codes and scales of one weight lie apart.
  StateDict parts[2];
  nlohmann::json where;
  for (size_t i = 0; i < tensors.size(); ++i) {
    parts[i % 2].push_back(tensors[i]);
    where[tensors[i].name] = fmt::format("part-{}.safetensors", i % 2);
  }
  fs::remove(folder.path / "model.safetensors");
  for (const int i : {0, 1})
    write_safetensors(folder.path / fmt::format("part-{}.safetensors", i), parts[i]);
  write_text(folder.path / "model.safetensors.index.json",
             nlohmann::json({{"weight_map", where}}).dump());
  CHECK(logits_of(*in_nf4(folder.path)) == whole);
}

TEST_CASE("decoder nf4: folders are written, with the bits of the encoder") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  for (const char* family : {"llama", "gemma"}) {
    const Decoder model(nf4_decoder(family));
    write_nf4_folder(folder.path, model.config(), tensors_in_nf4(model));
    save_decoder(folder / "one", model, {.nf4 = true});
    save_decoder(folder / "parts", model,
                 {.dtype = DType::bf16, .nf4 = true, .shard_bytes = 20000});
    CHECK(fs::exists(folder / "parts/model.safetensors.index.json"));
    const std::vector<float> logits = logits_of(*in_nf4(folder.path));
    CHECK(logits_of(*in_nf4(folder / "one")) == logits);
    CHECK(nf4_distance(logits, logits_of(*in_nf4(folder / "parts"))) < 0.05);  // embeddings
    CHECK(DecoderFiles(folder / "parts").working_dtype() == DType::bf16);
    const std::string config = bytes_of(folder / "parts/config.json");
    for (const char* word : {"bitsandbytes", "load_in_4bit", "\"nf4\"", "use_double_quant"})
      CHECK(contains(config, word));
    // As floats, it is a folder like others.
    Decoder floats(model.config());
    load_decoder(folder / "one", floats);
    save_decoder(folder / "again", floats, {.dtype = DType::f16});
    CHECK(!DecoderFiles(folder / "again").is_quantised());
  }
  const auto said = [&](const Decoder& model) {
    return message_of<ValueError>([&] { save_decoder(folder / "new", model, {.nf4 = true}); });
  };
  CHECK(contains(said(Decoder(small_decoder("llama"))), "whole blocks of 64"));
  const Decoder infinite(nf4_decoder("llama"));
  for (const auto& [name, parameter] : infinite.named_parameters())
    if (name == "model.layers.1.mlp.up_proj.weight")
      Tensor(parameter).copy_(parameter.detach() * INFINITY);
  CHECK(contains(said(infinite), "must be finite"));
  CHECK(!fs::exists(folder / "new/config.json"));
}

TEST_CASE("decoder nf4: what is refused, before anything is written") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const Decoder model(nf4_decoder("llama"));
  const std::string weight = "model.layers.1.mlp.up_proj.weight",
                    state = weight + ".quant_state.bitsandbytes__nf4";
  const auto refused = [&](const std::string& what, const StateDict& tensors) {
    write_nf4_folder(folder.path, model.config(), tensors);
    CHECK(contains(message_of<FileError>([&] { in_nf4(folder.path); }), what));
    Decoder floats(nf4_decoder("llama"));
    const std::vector<float> before = logits_of(floats);
    CHECK(contains(message_of<FileError>([&] { load_decoder(folder.path, floats); }), what));
    CHECK(logits_of(floats) == before);
  };
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    StateDict tensors = tensors_in_nf4(model);
    for (NamedTensor& t : tensors)
      if (t.name == name) t.tensor = tensor;
    return tensors;
  };
  const auto with_state = [&](const std::string& from, const std::string& to) {
    std::string text =
        R"({"quant_type":"nf4","blocksize":64,"shape":[128,64],"nested_blocksize":256,"nested_offset":0.5})";
    text.replace(text.find(from), from.size(), to);
    return with(state, nf4_bytes(std::as_bytes(std::span(text))));
  };
  refused("quant_type \"nf4\"", with_state("nf4", "fp4"));
  refused("nested_blocksize 256", with_state("256", "128"));
  refused("nested_blocksize 256", with_state(R"(,"nested_blocksize":256)", ""));
  refused("nested_offset", with_state("0.5", "1e99"));
  refused("shape of a matrix", with_state("[128,64]", "[128]"));
  refused("[1, 1073741824]", with_state("[128,64]", "[-128,64]"));
  refused("whole blocks of 64", with_state("[128,64]", "[64,96]"));
  refused("must have the shape (128, 64), got (64, 128)", with_state("[128,64]", "[64,128]"));
  refused("must have 2048 elements of U8, got 4096", with_state("[128,64]", "[64,64]"));
  refused("JSON object", with_state("{", "["));
  refused("the values of NF4", with(weight + ".quant_map", zeros({16})));
  refused("must have 1 elements of F32, got 2", with(weight + ".nested_absmax", zeros({2})));
  StateDict tensors = tensors_in_nf4(model);
  std::erase_if(tensors, [&](const NamedTensor& t) { return t.name == weight + ".absmax"; });
  refused("no tensor \"" + weight + ".absmax\"", tensors);
  tensors = tensors_in_nf4(model);
  tensors.push_back({"model.layers.0.mlp.up_proj.SCB", zeros({4})});
  refused("of bitsandbytes' quantisations, NF4", tensors);
  tensors = tensors_in_nf4(model);
  for (NamedTensor& t : nf4_tensors("model.other.weight", zeros({64, 64}), DType::f32))
    tensors.push_back(std::move(t));
  refused("which the model does not have", tensors);
  // A model in blocks does not read floats.
  write_nf4_folder(folder.path, model.config(), state_dict(model));
  auto blocks = make_decoder(model.config(), nf4_types(model.config()), DType::f32);
  CHECK(contains(message_of<FileError>([&] { load_decoder(folder.path, *blocks); }), "in NF4"));
}

TEST_SUITE_END();

}  // namespace rw::test
