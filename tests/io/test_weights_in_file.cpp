// Matrices of a base that stay in its file: the bits of those that are loaded, memory, and files
// that are not as they should be.
#include <doctest/doctest.h>

#include "io/models/decoder.h"
#include "nn/adapters/lora.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

// Matrices of whole blocks of 256 and of 64 KiB or more, but for those of values.
DecoderConfig streamed_decoder(const std::string& type) {
  DecoderConfig c = small_decoder(type);
  c.vocab_size = 300;
  c.hidden_size = c.intermediate_size = 256;
  c.head_dim = 64;
  c.num_key_value_heads = 4;
  return c;
}

struct AdapterRun {
  std::vector<std::vector<float>> values;  // of the adapters, and the losses
  MemoryReport memory;
  uint64_t frozen = 0, read = 0;
};

std::unique_ptr<Decoder> base_in(const fs::path& path, DType dtype, bool stay_in_file) {
  const DecoderFiles files(path);
  auto model = make_decoder(files.config(), files.types(), dtype, stay_in_file);
  files.load(*model);
  return model;
}

// Three updates of adapters, with a segment a layer.
AdapterRun train_adapters(Decoder& model, FrozenWeights* frozen) {
  add_lora(model, {.rank = 2, .dora = true});
  model.set_checkpoint(1);
  AdamW optimizer(model.parameters(), {.lr = 1e-2f});
  Device& device = *default_device();
  device.reset_peak();
  AdapterRun run;
  for (int32_t t = 0; t < 3; ++t) {
    if (frozen) frozen->begin_step();
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 24; ++i) ids.push_back((i * 7 + t) % 300);
    const Tensor x = device.backend().is_dry() ? empty({2, 12}, DType::i32) : tensor(ids, {2, 12});
    const Tensor loss = model.loss(x, x);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (!device.backend().is_dry()) run.values.push_back(loss.to_vector());
  }
  run.memory = device.memory_report();
  if (frozen) run.frozen = frozen->bytes(), run.read = frozen->file()->bytes_read();
  if (!device.backend().is_dry())
    for (const NamedLora& lora : lora_adapters(model))
      for (const Tensor& p : lora.adapter->parameters()) run.values.push_back(p.to_vector());
  return run;
}

std::vector<WeightInFile> weights_of(const fs::path& path, const Decoder& model) {
  const DecoderFiles files(path);
  return matrices_in_file(&files, model);
}

AdapterRun train_from(const fs::path& path, DType dtype, bool stay_in_file) {
  manual_seed(7);
  const auto model = base_in(path, dtype, stay_in_file);
  if (!stay_in_file) return train_adapters(*model, nullptr);
  FrozenWeights frozen(weights_of(path, *model), 1 << 18);
  return train_adapters(*model, &frozen);
}

void check_same_bits(const char* family, bool is_brief) {
  const TemporaryFolder folder;
  const Decoder model(streamed_decoder(family));
  save_decoder_gguf(folder / "blocks.gguf", model, GgufType::q8_0);
  save_decoder_gguf(folder / "halves.gguf", model, GgufType::bf16);
  save_decoder(folder / "whole", model);
  save_decoder(folder / "parts", model, {.dtype = DType::bf16, .shard_bytes = 400'000});
  std::vector<std::pair<const char*, DType>> bases = {{"blocks.gguf", DType::bf16}};
  if (!is_brief)
    bases.insert(bases.end(), {{"blocks.gguf", DType::f32},
                               {"halves.gguf", DType::bf16},
                               {"whole", DType::f32},
                               {"parts", DType::bf16}});
  for (const auto& [name, dtype] : bases) {
    CAPTURE(family);
    CAPTURE(name);
    const fs::path path = folder / name;
    CHECK(DecoderFiles(path).holds_matrices_as(dtype));
    const AdapterRun plain = train_from(path, dtype, false), other = train_from(path, dtype, true);
    CHECK(other.values == plain.values);
    CHECK(other.read >= 3 * other.frozen);
    CHECK(other.frozen > uint64_t{1} << 20);
    CHECK(other.memory.peak + other.frozen / 2 < plain.memory.peak);
    CHECK(other.memory.host_peak == 0);
  }
}

}  // namespace

TEST_CASE("weights in file: adapters get the bits that they get of a base in memory") {
  on_each_device([] {
    const bool is_cpu = default_device()->info().backend == "cpu";
    check_same_bits("llama", !is_cpu);
    if (!is_cpu) return;
    check_same_bits("qwen2", false);
    check_same_bits("gemma", false);
  });
}

TEST_CASE("weights in file: a dry run needs no file, and has the bytes of a run") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const DecoderConfig config = streamed_decoder("llama");
  save_decoder_gguf(folder / "m.gguf", Decoder(config), GgufType::q8_0);
  const AdapterRun real = train_from(folder / "m.gguf", DType::bf16, true);
  AdapterRun dry;
  dry_run(open_backend("dry:cpu"), [&] {
    const auto model =
        make_decoder(config, decoder_types(config, GgufType::q8_0), DType::bf16, true);
    FrozenWeights frozen(matrices_in_file(nullptr, *model), 1 << 18);
    dry = train_adapters(*model, &frozen);
  });
  CHECK(dry.memory.peak == real.memory.peak);
  CHECK(dry.read == real.read);
  CHECK(dry.frozen == real.frozen);
}

TEST_CASE("weights in file: what is refused, before training and in it" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const fs::path path = folder / "m.gguf";
  const Decoder model(streamed_decoder("qwen2"));
  save_decoder_gguf(path, model, GgufType::f32);
  CHECK(!DecoderFiles(path).holds_matrices_as(DType::bf16));
  CHECK(!DecoderFiles(path).holds_matrices_as(DType::f16));
  const auto narrow = base_in(path, DType::bf16, true);
  CHECK(contains(message_of<FileError>([&] { weights_of(path, *narrow); }),
                 "bytes of BF16 to stay in the file, got"));
  save_decoder(folder / "m", model);
  const auto others = base_in(folder / "m", DType::bf16, true);
  CHECK(
      contains(message_of<FileError>([&] { weights_of(folder / "m", *others); }), "must be BF16"));

  const auto base = base_in(path, DType::f32, true);
  const Tensor x = tensor(std::vector<int32_t>{1, 2, 3}, {1, 3});
  CHECK_THROWS_AS(base->loss(x, x), DeviceError);  // nobody brings them
  FrozenWeights frozen(weights_of(path, *base), 1 << 18);
  const auto loss = [&] {
    const NoGrad guard;
    frozen.begin_step();
    return base->loss(x, x).item();
  };
  CHECK(loss() == base_in(path, DType::f32, false)->loss(x, x).item());
  fs::resize_file(path, fs::file_size(path) / 2);
  CHECK(contains(message_of<FileError>(loss), "m.gguf"));
}

}  // namespace rw::test
