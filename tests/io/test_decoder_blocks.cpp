// Decoders whose quantised weights stay in the blocks of their files.
#include <doctest/doctest.h>

#include <cmath>

#include "io/models/decoder.h"
#include "io/models/decoder/gguf.h"
#include "nn/init.h"
#include "ops/operators.h"
#include "planner/dry_run.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

std::unique_ptr<Decoder> decoder_in_blocks(const fs::path& path, DType dtype = DType::f32) {
  const GgufFile file(path);
  const DecoderConfig config = parse_decoder_metadata(file);
  std::unique_ptr<Decoder> model = make_decoder(config, decoder_types(file, config), dtype);
  load_decoder_tensors(file, *model, config);
  return model;
}

std::unique_ptr<Decoder> decoder_of_floats(const fs::path& path) {
  auto model = std::make_unique<Decoder>(read_decoder_config(path));
  load_decoder(path, *model);
  return model;
}

Tensor block_ids(int64_t n, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n * length; ++i) ids.push_back(static_cast<int32_t>(i * 7 % 50));
  return tensor(ids, {n, length});
}

double distance(const std::vector<float>& x, const std::vector<float>& y) {
  REQUIRE(x.size() == y.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  return std::sqrt(error / size);
}

// The loss, and the gradients of what is not frozen.
std::vector<std::vector<float>> loss_and_gradients(Decoder& model, int checkpoint = 0) {
  model.set_checkpoint(checkpoint);
  const Tensor ids = block_ids(2, 11);
  const Tensor loss = model.loss(ids, ids);
  loss.backward();
  std::vector<std::vector<float>> found = {loss.to_vector()};
  for (NamedTensor& p : model.named_parameters()) {
    if (p.name.ends_with("norm.weight")) found.push_back(p.tensor.grad().to_vector());
    p.tensor.set_grad({});
  }
  return found;
}

// Rows of whole blocks of 256.
DecoderConfig wide_decoder(const std::string& type) {
  DecoderConfig c = small_decoder(type);
  c.hidden_size = c.intermediate_size = 256;
  c.head_dim = 64;
  return c;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("decoder blocks: logits, loss and gradients are those of the floats") {
  set_default_device(open_backend("reference"));
  for (const DecoderConfig& config : small_decoders()) {
    CAPTURE(config.model_type);
    const TemporaryFolder folder;
    const fs::path path = folder.path / "m.gguf";
    save_decoder_gguf(path, Decoder(config), GgufType::q8_0);
    const auto floats = decoder_of_floats(path), blocks = decoder_in_blocks(path);
    for (const NamedTensor& p : blocks->named_parameters()) CHECK(p.tensor.rank() == 1);
    CHECK(blocks->vocabulary() == 50);
    CHECK(distance(logits_of(*floats), logits_of(*blocks)) < 1e-5);
    const auto exact = loss_and_gradients(*floats), found = loss_and_gradients(*blocks);
    REQUIRE(exact.size() == found.size());
    for (size_t i = 0; i < exact.size(); ++i) CHECK(distance(exact[i], found[i]) < 1e-4);
    CHECK(loss_and_gradients(*blocks, 1) == found);
    const GenerateOptions options{.max_new_tokens = 8, .sample = {.temperature = 0}};
    const Tensor prompt = block_ids(2, 3);
    CHECK(blocks->generate(prompt, options).to_ints() ==
          floats->generate(prompt, options).to_ints());
    // Norms stay f32 beside narrow activations.
    const auto narrow = decoder_in_blocks(path, DType::bf16);
    CHECK(narrow->dtype() == DType::bf16);
    for (const NamedTensor& p : narrow->named_parameters())
      CHECK((p.tensor.dtype() == DType::f32) == p.name.ends_with("norm.weight"));
    CHECK(distance(logits_of(*floats), logits_of(*narrow)) < 0.1);
  }
}

TEST_CASE("decoder blocks: each type, and files of several") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  for (const char* family : {"llama", "gemma"}) {
    const Decoder model(wide_decoder(family));
    for (const GgufType type : {GgufType::q8_0, GgufType::q4_0, GgufType::q4_k, GgufType::q6_k}) {
      CAPTURE(gguf_type_info(type).name);
      save_decoder_gguf(path, model, type);
      const auto floats = decoder_of_floats(path), blocks = decoder_in_blocks(path);
      CHECK(distance(logits_of(*floats), logits_of(*blocks)) < 1e-4);
      CHECK(DecoderFiles(path).types() == decoder_types(model.config(), type));
    }
    // Some matrices are floats, as where rows are no whole blocks.
    std::vector<GgufSource> sources = decoder_tensors(model, model.config(), GgufType::q4_k);
    for (GgufSource& source : sources)
      if (source.name.ends_with("ffn_down.weight") || source.name == "token_embd.weight")
        source.type = GgufType::f16;
    write_gguf(path, sources, decoder_metadata(model.config(), GgufType::q4_k));
    const auto floats = decoder_of_floats(path), mixed = decoder_in_blocks(path);
    CHECK(distance(logits_of(*floats), logits_of(*mixed)) < 1e-4);
    CHECK((mixed->head_blocks() == nullptr) == mixed->config().tie_word_embeddings);
  }
}

TEST_CASE("decoder blocks: memory is that of the file, and a dry run knows it") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  DecoderConfig config = wide_decoder("llama");
  config.vocab_size = 5000;
  config.num_hidden_layers = 6;
  save_decoder_gguf(path, Decoder(config), GgufType::q8_0);
  const auto file_bytes = static_cast<double>(fs::file_size(path));
  const auto run = [&] {
    Device& device = *default_device();
    device.reset_peak();
    const uint64_t before = device.memory_report().live;
    const auto model = decoder_in_blocks(path);
    CHECK(static_cast<double>(device.memory_report().live - before) < 1.02 * file_bytes);
    CHECK(static_cast<double>(device.memory_report().peak - before) < 1.2 * file_bytes);
    loss_and_gradients(*model);
    return device.memory_report().peak - before;
  };
  uint64_t dry = 0;
  dry_run(open_backend("dry:cpu"), [&] { dry = run(); });
  CHECK(run() == dry);
}

TEST_CASE("decoder blocks: what is refused") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const fs::path path = folder.path / "m.gguf";
  const DecoderConfig config = small_decoder("qwen3");
  const Decoder model(config);
  save_decoder_gguf(path, model, GgufType::q8_0);
  const auto blocks = decoder_in_blocks(path);
  CHECK_THROWS_AS(save_decoder(folder.path / "new", *blocks), ValueError);
  CHECK_THROWS_AS(save_decoder_gguf(folder.path / "new.gguf", *blocks, GgufType::f32), ValueError);
  CHECK(!fs::exists(folder.path / "new"));
  const auto logits = logits_of(*blocks);
  load_decoder(path, *blocks);  // its types are those of the file
  CHECK(logits_of(*blocks) == logits);
  const auto others = make_decoder(config, decoder_types(config, GgufType::q4_0), DType::f32);
  CHECK(contains(message_of<FileError>([&] { load_decoder(path, *others); }),
                 "must be of the type Q4_0, got Q8_0"));

  std::vector<GgufSource> sources = decoder_tensors(model, config, GgufType::q8_0);
  const auto refusal = [&] {
    write_gguf(path, sources, decoder_metadata(config, GgufType::q8_0));
    return message_of<FileError>([&] { decoder_in_blocks(path); });
  };
  sources[1].shape = Shape{sources[1].tensor.numel() / 32, 32};
  CHECK(contains(refusal(), "must have the shape"));
  sources.erase(sources.begin() + 1);
  CHECK(contains(refusal(), "has no tensor"));

  std::unique_ptr<Decoder> empty;
  {
    const init::WithoutWeights in_blocks;
    empty = std::make_unique<Decoder>(config);
  }
  CHECK(contains(message_of<ValueError>([&] { logits_of(*empty); }), "another module must stand"));
}

}  // namespace rw::test
