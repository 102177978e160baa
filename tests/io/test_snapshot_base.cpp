// Snapshots of adapters, without the base that nothing trains.
#include <doctest/doctest.h>

#include <fstream>

#include "io/models/decoder.h"
#include "io/snapshot/snapshot.h"
#include "nn/adapters/lora.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

// Adapters of a decoder in training, with dropout.
struct AdapterTraining {
  std::unique_ptr<Decoder> model;
  std::unique_ptr<AdamW> optimizer;

  explicit AdapterTraining(std::unique_ptr<Decoder> base) : model(std::move(base)) {
    manual_seed(7);
    add_lora(*model, {.rank = 2, .dropout = 0.25f});
    optimizer = std::make_unique<AdamW>(model->parameters(), AdamWOptions{.lr = 0.01f});
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < 12; ++i) ids.push_back((i * 7 + step) % 50);
      const Tensor text = tensor(ids, {1, 12});
      optimizer->backward(model->loss(text, text));
      optimizer->step();
      optimizer->zero_grad();
    }
  }
  TrainingState state(const std::string& base) {
    return {.model = *model, .optimizer = *optimizer, .base = base};
  }
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const NamedLora& a : lora_adapters(*model))
      for (const Tensor& parameter : a.adapter->parameters()) all.push_back(parameter.to_vector());
    return all;
  }
};

std::unique_ptr<Decoder> snapshot_base() {
  manual_seed(1);
  return std::make_unique<Decoder>(small_decoder("llama"));
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("snapshot of adapters: it has no base, and training goes on bit for bit") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  save_decoder_gguf(folder / "q8.gguf", *snapshot_base(), GgufType::q8_0);
  const auto in_blocks = [&] {
    const DecoderFiles files(folder / "q8.gguf");
    auto model = make_decoder(files.config(), files.types(), DType::f32);
    files.load(*model);
    return model;
  };
  for (const auto& base : {std::function(snapshot_base), std::function(in_blocks)}) {
    const fs::path path = folder / "step.safetensors";
    AdapterTraining run(base());
    run.train(0, 3);
    save_snapshot(path, run.state("the base"), {.step = 3});
    size_t adapters = 0;
    const SafetensorsFile file(path);
    for (const auto& [name, stored] : file.tensors()) {
      CAPTURE(name);
      CHECK((name.starts_with("optimizer.") || name.find(".lora_") != std::string::npos));
      adapters += name.starts_with("model.");
    }
    CHECK(adapters == 28);
    run.train(3, 6);
    AdapterTraining other(base());
    CHECK(load_snapshot(path, other.state("the base")).step == 3);
    other.train(3, 6);
    CHECK(other.values() == run.values());
  }
}

TEST_CASE("snapshot of adapters: another base is refused") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const fs::path path = folder / "step.safetensors";
  AdapterTraining run(snapshot_base());
  run.train(0, 2);
  save_snapshot(path, run.state("12 bytes, hash ab"), {.step = 2});
  AdapterTraining other(snapshot_base());
  const auto before = other.values();
  for (const char* base : {"12 bytes, hash ac", ""}) {
    const std::string said = message_of<FileError>([&] { load_snapshot(path, other.state(base)); });
    CHECK(contains(said, "another base model"));
    CHECK(contains(said, "12 bytes, hash ab"));
    CHECK(contains(said, path.string()));
  }
  CHECK(other.values() == before);
  // One that has everything may be resumed by a run that leaves its base out.
  save_snapshot(path, run.state(""), {.step = 2});
  CHECK(SafetensorsFile(path).tensors().contains("model.model.norm.weight"));
  load_snapshot(path, other.state("12 bytes, hash ac"));
  CHECK(other.values() == run.values());
}

TEST_CASE("snapshot of adapters: buffers that change are saved") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  Sequential model;
  model.emplace<Linear>(4, 4);
  model.emplace<BatchNorm2d>(4);
  model.emplace<Linear>(4, 2);
  add_lora(model, {.rank = 2});
  AdamW optimizer(model.parameters(), {});
  save_snapshot(folder / "s.safetensors",
                {.model = model, .optimizer = optimizer, .base = "the base"}, {});
  const SafetensorsFile file(folder / "s.safetensors");
  const auto& tensors = file.tensors();
  CHECK(tensors.contains("model.1.running_mean"));
  CHECK(!tensors.contains("model.1.weight"));
  CHECK(!tensors.contains("model.0.weight"));
  CHECK(tensors.contains("model.0.lora_A.weight"));
}

TEST_CASE("snapshot of adapters: files of other weights have another fingerprint") {
  set_default_device(open_backend("cpu"));
  const TemporaryFolder folder;
  const auto model = snapshot_base();
  const auto of_folder = [&](const Decoder& m, const SaveDecoderOptions& options = {}) {
    save_decoder(folder / "m", m, options);
    return DecoderFiles(folder / "m").fingerprint();
  };
  const std::string whole = of_folder(*model);
  CHECK(of_folder(*snapshot_base()) == whole);
  CHECK(of_folder(*model, {.dtype = DType::bf16}) != whole);
  CHECK(of_folder(*model, {.shard_bytes = 20000}) == whole);
  save_decoder_gguf(folder / "m.gguf", *model, GgufType::q8_0);
  const std::string in_gguf = DecoderFiles(folder / "m.gguf").fingerprint();
  CHECK(DecoderFiles(folder / "m.gguf").fingerprint() == in_gguf);
  // Each tensor counts, as does the beginning and the end of it.
  for (const NamedTensor& parameter : model->named_parameters()) {
    CAPTURE(parameter.name);
    const NoGrad guard;
    const std::vector<float> values = parameter.tensor.to_vector();
    for (const size_t at : {size_t{0}, values.size() - 1}) {
      std::vector<float> changed = values;
      changed[at] += 1;
      Tensor(parameter.tensor).copy_from(std::span<const float>(changed));
      CHECK(of_folder(*model) != whole);
    }
    Tensor(parameter.tensor).copy_from(std::span<const float>(values));
  }
  CHECK(of_folder(*model) == whole);
  const auto first = model->parameters().front();
  Tensor(first).copy_(first.detach() * 0.5f);
  save_decoder_gguf(folder / "m.gguf", *model, GgufType::q8_0);
  CHECK(DecoderFiles(folder / "m.gguf").fingerprint() != in_gguf);
}

TEST_SUITE_END();

}  // namespace rw::test
