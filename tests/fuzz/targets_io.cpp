// Readers of io/, and of device profiles.
#include <nlohmann/json.hpp>

#include <zlib.h>

#include "backends/vulkan/composer.h"
#include "backends/vulkan/device/tuning_file.h"
#include "backends/vulkan/pipelines/profile.h"
#include "core/memory/default_device.h"
#include "io/formats/npy.h"
#include "io/formats/transfer.h"
#include "io/models/bert.h"
#include "io/models/classifier.h"
#include "io/models/gpt.h"
#include "io/models/speech.h"
#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "planner/dry_run.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

// ---- tensors ------------------------------------------------------------------------------------

void read_safetensors(Input input) {
  use_cpu();
  const SafetensorsFile file(write_scratch("file.safetensors", input));
  for (const auto& [name, stored] : file.tensors()) {
    expect(!stored.unread.empty() || stored.bytes == static_cast<uint64_t>(stored.shape.numel()) *
                                                         stored_size(stored.dtype),
           "a tensor has the bytes of its shape");
    const bool whole = stored.dtype.starts_with('I') || stored.dtype.starts_with('U');
    const Tensor target = empty(stored.shape, whole ? DType::i32 : DType::f32);
    try {
      file.read(name, target);
    } catch (const FileError&) {  // a dtype that tensors do not have, or integers that do not fit
    }
  }
}

std::vector<Bytes> safetensors_seeds() {
  use_cpu();
  const auto file = scratch_file("seed.safetensors");
  write_safetensors(
      file, {{"weight", full({2, 3}, 1.5f)}, {"nothing", full({0, 4}, 1)}, {"one", full({}, 2)}},
      {{"format", "pt"}, {"a \"name\"", "\n"}});
  const Bytes floats = file_bytes(file);
  write_safetensors(file, {{"ids", full({5}, 3, DType::i32)}, {"bytes", full({3}, 3, DType::u8)}});
  return {floats, file_bytes(file)};
}

// The header's length is always right, and there are data, so that mutations get further.
void read_safetensors_header(Input input) {
  const auto [header, data] = split(input);
  Bytes file(8);
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<uint8_t>(uint64_t{header.size()} >> (8 * i));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), data.begin(), data.end());
  read_safetensors(file);
}

std::vector<Bytes> safetensors_header_seeds() {
  std::vector<Bytes> seeds;
  for (const Bytes& file : safetensors_seeds()) {
    const size_t length = file[0] | size_t{file[1]} << 8;
    seeds.push_back(join(Input(file).subspan(8, length), Input(file).subspan(8 + length)));
  }
  return seeds;
}

// Reads a classifier's metadata in a file that is otherwise right.
void read_classifier(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  Metadata metadata;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = std::min(line.find(':'), line.size());
    metadata[std::string(line.substr(0, colon))] = line.substr(std::min(colon + 1, line.size()));
    at = end + 1;
  }
  use_cpu();
  const auto file = scratch_file("classifier.safetensors");
  write_safetensors(file, {{"one", full({}, 2)}}, metadata);
  const ImageClassifier read = read_image_classifier(SafetensorsFile(file));
  const Metadata again = to_metadata(read);
  write_safetensors(file, {{"one", full({}, 2)}}, again);
  expect(to_metadata(read_image_classifier(SafetensorsFile(file))) == again,
         "a classifier survives a round trip");
}

std::vector<Bytes> classifier_seeds() {
  return {to_bytes("model:resnet18\nimage:224\nclasses:[\"cat\", \"dog\"]\n"
                   "mean:[0.5, 0.4, 0.3]\nstd:[0.2, 0.2, 0.3]"),
          to_bytes("format:pt")};
}

// Reads a recogniser's metadata.
void read_recognizer_entry(Input input) {
  use_cpu();
  const auto file = scratch_file("recognizer.safetensors");
  const std::string text(input.begin(), input.end());
  try {
    write_safetensors(file, {{"one", full({}, 2)}}, {{"speech_recognizer", text}});
  } catch (const ValueError&) {  // not UTF-8, so no such file can exist
    fail<FileError>("fuzz", "no UTF-8");
  }
  const Metadata again = to_metadata(read_recognizer(SafetensorsFile(file)));
  write_safetensors(file, {{"one", full({}, 2)}}, again);
  expect(to_metadata(read_recognizer(SafetensorsFile(file))) == again,
         "a recogniser survives a round trip");
}

std::vector<Bytes> recognizer_seeds() {
  std::vector<Bytes> seeds;
  StoredRecognizer words{.units = {"one", "two", "it's"}};
  words.config.classes = 4;
  seeds.push_back(to_bytes(to_metadata(words).begin()->second));
  words.config.loss = SpeechLoss::rnnt, words.has_words = false, words.units = {"a", "b", " "};
  seeds.push_back(to_bytes(to_metadata(words).begin()->second));
  return seeds;
}

void read_npy(Input input) {
  use_cpu();
  const Tensor tensor = load_npy(write_scratch("array.npy", input));
  save_npy(scratch_file("again.npy"), tensor);
  expect(load_npy(scratch_file("again.npy")).shape() == tensor.shape(),
         "an array survives a round trip");
}

std::vector<Bytes> npy_seeds() {
  use_cpu();
  std::vector<Bytes> seeds;
  for (const Tensor& t : {full({2, 3}, 1), full({4}, 2, DType::i32), full({}, 1, DType::f16),
                          full({3, 0, 2}, 1, DType::u8)}) {
    save_npy(scratch_file("seed.npy"), t);
    seeds.push_back(file_bytes(scratch_file("seed.npy")));
  }
  const std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }\n";
  std::string second = std::string("\x93NUMPY\2\0", 8) + char(header.size()) + std::string(3, '\0');
  seeds.push_back(
      to_bytes(second + header + std::string("\5\0\0\0\0\0\0\0", 8) + std::string(8, '\0')));
  return seeds;
}

// A model with its optimizer, as in a training run.
struct Run {
  Sequential model;
  std::optional<Adam> optimizer;
  Generator generator{1};

  Run() {
    use_cpu();
    model.emplace<Linear>(3, 2);
    optimizer.emplace(model.parameters(), AdamOptions{});
  }
  TrainingState state() {
    return {.model = model, .optimizer = *optimizer, .generator = generator};
  }
};

void read_snapshot(Input input) {
  static Run run;
  load_snapshot(write_scratch("step.safetensors", input), run.state());
}

std::vector<Bytes> snapshot_seeds() {
  Run run;
  const auto file = scratch_file("seed.safetensors");
  save_snapshot(file, run.state(),
                {.step = 7, .epoch = 1, .index = 2, .json = R"({"history": []})"});
  return {file_bytes(file)};
}

// ---- JSON ---------------------------------------------------------------------------------------

void read_profile(Input input) {
  const vulkan::Caps caps =
      vulkan::parse_caps({reinterpret_cast<const char*>(input.data()), input.size()}, "input");
  const std::string text = vulkan::to_json(caps);
  expect(vulkan::to_json(vulkan::parse_caps(text, "again")) == text,
         "a profile survives a round trip");
  try {
    dry_run(vulkan::make_dry_backend(caps, vulkan::to_info(caps)), [] {
      Linear layer(40000, 300);
      sum(layer(full({64, 40000}, 1))).backward();
      sum(conv2d(full({2, 9, 9, 16}, 1), full({32, 3, 3, 16}, 1), {})).item();
    });
  } catch (const OutOfMemory&) {  // small devices may exist
  }
}

std::vector<Bytes> profile_seeds() {
  vulkan::Caps caps;
  caps.name = "a device";
  caps.driver = "a driver";
  caps.features = 511;
  caps.subgroup_size = caps.workgroup_size = 32;
  caps.shared_bytes = 49152;
  caps.max_threads = 1024;
  caps.max_groups = {65535, 65535, 65535};
  caps.max_range = caps.max_block = uint64_t{1} << 32;
  caps.heap_bytes = uint64_t{8} << 30;
  const std::string gpu = vulkan::to_json(caps);
  caps.is_cpu = caps.unified_memory = true;
  caps.subgroup_size = caps.workgroup_size = 8;
  caps.heap_bytes = 1 << 20;
  return {to_bytes(gpu), to_bytes(vulkan::to_json(caps))};
}

void read_bert(Input input) {
  const BertConfig config = read_bert_config(write_scratch("config.json", input));
  write_bert_config(scratch_file("again.json"), config, "BertModel");
  expect(read_bert_config(scratch_file("again.json")).hidden_size == config.hidden_size,
         "a configuration survives a round trip");
  if (config.num_hidden_layers > 20) return;
  use_cpu();
  dry_run(default_device()->backend().dry(
              {.memory_bytes = UINT64_MAX, .max_block_bytes = uint64_t{1} << 60}),
          [&] { BertForPreTraining model(config); });
}

std::vector<Bytes> bert_config_seeds() {
  write_bert_config(scratch_file("seed.json"), BertConfig::preset("tiny"), "BertForMaskedLM");
  return {file_bytes(scratch_file("seed.json")), to_bytes("{}"),
          to_bytes(R"({"hidden_size": 24, "layer_norm_eps": 1e-5, "hidden_act": "gelu"})")};
}

void read_gpt(Input input) {
  const GptConfig config = read_gpt_config(write_scratch("gpt.json", input));
  write_gpt_config(scratch_file("again.json"), config);
  expect(read_gpt_config(scratch_file("again.json")).n_embd == config.n_embd,
         "a configuration survives a round trip");
}

std::vector<Bytes> gpt_seeds() {
  write_gpt_config(scratch_file("seed.json"), {});
  return {file_bytes(scratch_file("seed.json")), to_bytes("{}"),
          to_bytes(R"({"n_embd": 24, "n_head": 3, "layer_norm_epsilon": 1e-5})")};
}

void read_choices(Input input) {
  const auto json = nlohmann::json::parse(input.begin(), input.end(), nullptr, false);
  check<FileError>(!json.is_discarded(), "fuzz", "no JSON");
  const vulkan::Tuning tuning = vulkan::parse_tuning(json, "input");
  expect(vulkan::parse_tuning(vulkan::tuning_json(tuning), "again") == tuning,
         "choices survive a round trip");
}

std::vector<Bytes> choice_seeds() {
  return {
      to_bytes(R"({"made": "today", "choices": {"gemm f32-f32 nn a4 b4 c4 m1 n2 k3 x1": "naive",)"
               R"( "conv2d f32-f32 k3x3 s1x1 x8 y8 pixels2 in8 out3": "subgroup4-split2"}})"),
      to_bytes(R"({"made": "", "choices": {}})")};
}

}  // namespace

std::vector<Target> io_targets() {
  using Words = std::vector<std::string_view>;
  const Words json = json_words();
  Words choices = json;
  for (const char* word :
       {"\"naive\"", "subgroup4", "-split2", "gemm f32-f32", "\"made\"", "\"choices\""})
    choices.push_back(word);
  Words tensors = json;
  for (const char* word :
       {"\"F32\"", "\"I64\"", "\"BF16\"", "\"F8_E4M3\"", "\"shape\"", "\"data_offsets\"",
        "\"__metadata__\"", "4294967296", "format", "step", "rng_seed"})
    tensors.push_back(word);
  return {{"safetensors", read_safetensors, safetensors_seeds, tensors},
          {"safetensors_header", read_safetensors_header, safetensors_header_seeds, tensors},
          {"npy",
           read_npy,
           npy_seeds,
           {"'<f8'", "'|b1'", "'>f4'", "True", "(", ")", ",", "4294967296", "  "}},
          {"snapshot", read_snapshot, snapshot_seeds, tensors},
          {"profile", read_profile, profile_seeds, json},
          {"bert_config", read_bert, bert_config_seeds, json},
          {"gpt_config", read_gpt, gpt_seeds, json},
          {"classifier", read_classifier, classifier_seeds, json},
          {"recognizer", read_recognizer_entry, recognizer_seeds, json},
          {"tuning", read_choices, choice_seeds, choices}};
}

}  // namespace rw::fuzz
