// Readers of decoders: GGUF, config.json and the index of several files.
#include <nlohmann/json.hpp>

#include "core/blocks/nf4.h"
#include "core/files/folder.h"
#include "core/memory/default_device.h"
#include "data/base/files.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "io/models/decoder/json.h"
#include "io/models/decoder/nf4.h"
#include "planner/dry_run.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

DecoderConfig small(const std::string& model_type) {
  DecoderConfig c{.model_type = model_type,
                  .vocab_size = 5,
                  .hidden_size = 32,
                  .intermediate_size = 32,
                  .num_hidden_layers = 2,
                  .num_attention_heads = 2,
                  .num_key_value_heads = 1,
                  .head_dim = 16,
                  .max_position_embeddings = 64};
  if (model_type == "llama")
    c.rope_scaling = {.type = "llama3", .factor = 8, .original_max_position_embeddings = 32};
  if (c.is_gemma()) c.tie_word_embeddings = true, c.hidden_act = "gelu_pytorch_tanh";
  if (model_type == "gemma3_text") c.sliding_window = 8, c.slides = {true, true};
  return c;
}

// Makes the model without its memory, if it is not so large that this would take long.
void make_dry(const DecoderConfig& config) {
  if (config.num_hidden_layers > 20) return;
  use_cpu();
  dry_run(default_device()->backend().dry(
              {.memory_bytes = UINT64_MAX, .max_block_bytes = uint64_t{1} << 60}),
          [&] { Decoder model(config); });
}

// ---- GGUF ---------------------------------------------------------------------------------------

void read_gguf(Input input) {
  use_cpu();
  const GgufFile file(write_scratch("file.gguf", input));
  for (const auto& [name, stored] : file.tensors()) {
    expect(stored.offset + stored.bytes <= input.size(), "a tensor lies in its file");
    try {
      file.read(name, empty(stored.shape));
    } catch (const FileError&) {  // a type that is not read
    }
  }
  const auto written = [](const GgufMetadata& metadata) {
    write_gguf(scratch_file("again.gguf"), {}, metadata);
    return file_bytes(scratch_file("again.gguf"));
  };
  const Bytes once = written(file.metadata());
  expect(written(GgufFile(scratch_file("again.gguf")).metadata()) == once,
         "metadata survive a round trip");
}

std::vector<Bytes> gguf_seeds() {
  use_cpu();
  const auto file = scratch_file("seed.gguf");
  std::vector<Bytes> seeds;
  write_gguf(file, {},
             {{"u8", uint8_t{1}},
              {"i8", int8_t{-1}},
              {"u16", uint16_t{2}},
              {"i16", int16_t{-2}},
              {"u64", uint64_t{3}},
              {"i64", int64_t{-3}},
              {"f64", 1.5},
              {"flag", true},
              {"words", GgufList(std::vector<std::string>{"a", "", "bc"})},
              {"flags", GgufList(std::vector<bool>{true, false})},
              {"scores", GgufList(std::vector<float>{1, 2})}});
  seeds.push_back(file_bytes(file));
  write_gguf(file,
             {{"a", full({2, 64}, 1.5f), GgufType::q8_0},
              {"b", full({3}, 2), GgufType::f32},
              {"c", full({0, 32}, 2), GgufType::f16},
              {"d", full({256}, 2), GgufType::bf16}},
             {{"general.alignment", uint32_t{32}}});
  seeds.push_back(file_bytes(file));
  return seeds;
}

void read_gguf_decoder(Input input) {
  use_cpu();
  static Decoder models[] = {Decoder(small("llama")), Decoder(small("gemma3_text"))};
  const auto file = write_scratch("model.gguf", input);
  const DecoderConfig config = read_decoder_config(file);
  make_dry(config);
  DecoderFiles(file).special_tokens();
  load_decoder(file, models[config.is_gemma()]);
}

std::vector<Bytes> gguf_decoder_seeds() {
  use_cpu();
  std::vector<Bytes> seeds;
  const auto file = scratch_file("seed.gguf");
  for (const char* model_type : {"llama", "gemma3_text"}) {
    const Decoder model(small(model_type));
    save_decoder_gguf(file, model, GgufType::q8_0,
                      {{"tokenizer.ggml.bos_token_id", uint32_t{1}},
                       {"tokenizer.ggml.eos_token_id", uint32_t{2}}});
    seeds.push_back(file_bytes(file));
  }
  return seeds;
}

// ---- folders ------------------------------------------------------------------------------------

void read_decoder(Input input) {
  const auto json = nlohmann::json::parse(input.begin(), input.end(), nullptr, false);
  check<FileError>(json.is_object(), "fuzz", "no JSON");
  const DecoderConfig config = parse_decoder_config(json, "input");
  const std::string text = decoder_config_json(config).dump();
  const DecoderConfig again = parse_decoder_config(nlohmann::json::parse(text), "again");
  expect(decoder_config_json(again).dump() == text, "a configuration survives a round trip");
  make_dry(config);
}

std::vector<Bytes> decoder_config_seeds() {
  std::vector<Bytes> seeds;
  for (const char* preset : {"llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "gemma-3-1b"})
    seeds.push_back(to_bytes(decoder_config_json(DecoderConfig::preset(preset)).dump()));
  seeds.push_back(to_bytes(
      R"({"model_type": "gemma3_text", "rope_parameters": {"full_attention": {"rope_type": "linear", )"
      R"("factor": 8, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default"}}})"));
  seeds.push_back(to_bytes(
      R"({"model_type": "qwen3", "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 32}, )"
      R"("use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3, "head_dim": null})"));
  return seeds;
}

// The folder of a model in two files, whose index is the input.
void read_index(Input input) {
  use_cpu();
  static Decoder model(small("llama"));
  static const bool saved = [] {
    save_decoder(scratch_file("index"), model, {.shard_bytes = 20000});
    return std::filesystem::remove(scratch_file("index") / "rewind-files.txt");
  }();
  expect(saved, "the folder is there");
  write_scratch("index/model.safetensors.index.json", input);
  load_decoder(scratch_file("index"), model);
}

std::vector<Bytes> index_seeds() {
  use_cpu();
  save_decoder(scratch_file("seed-index"), Decoder(small("llama")), {.shard_bytes = 20000});
  return {file_bytes(scratch_file("seed-index") / "model.safetensors.index.json")};
}

// Weights in NF4, as a folder has them.
void read_nf4(Input input) {
  use_cpu();
  const NoGrad guard;
  std::list<SafetensorsFile> files;
  files.emplace_back(write_scratch("nf4.safetensors", input));
  for (const auto& [weight, stored] : nf4_weights(files)) {
    const Shape& shape = stored.shape();
    const Shape codes = BlockMatrix::stored_shape(shape[0], shape[1], blocks::nf4);
    const BlockMatrix matrix(empty(codes, DType::u8), blocks::nf4);
    stored.read(matrix);
    expect(dequantize(matrix).shape() == shape, "a weight has its shape");
  }
}

std::vector<Bytes> nf4_seeds() {
  use_cpu();
  const auto file = scratch_file("seed.safetensors");
  StateDict tensors;
  for (const auto& [name, rows] : {std::pair("a", 3), {"b.weight", 300}})
    for (NamedTensor& part : nf4_tensors(name, rand({rows, 64}, -1, 1), DType::bf16))
      tensors.push_back(std::move(part));
  write_safetensors(file, tensors);
  return {file_bytes(file)};
}

// The list of a folder's files is the input.
void read_file_list(Input input) {
  std::filesystem::create_directories(scratch_file("listed"));
  write_scratch("listed/rewind-files.txt", input);
  for (const char* name : {"a", "rewind-files.txt"})
    expect(
        path_in(scratch_file("listed"), name).string().starts_with(scratch_file("listed").string()),
        "a file of the folder is in it");
  check_folder(scratch_file("listed"));
}

std::vector<Bytes> file_list_seeds() {
  AtomicFolder files(scratch_file("listed"));
  write_file(files.staged() / "a", std::string_view("some text"));
  files.commit([](const std::string&) { return false; });
  const Bytes list = file_bytes(scratch_file("listed") / "rewind-files.txt");
  Bytes moving = to_bytes("from rewind-new-abcdef\nwithout b\n");
  moving.insert(moving.end(), list.begin(), list.end());
  return {list, moving};
}

// The folder of an adapter: its configuration and its tensors.
void read_adapter_folder(Input input) {
  use_cpu();
  static Decoder model(small("llama"));
  const auto [config, tensors] = split(input);
  std::filesystem::create_directories(scratch_file("adapter"));
  write_scratch("adapter/adapter_config.json", config);
  write_scratch("adapter/adapter_model.safetensors", tensors);
  load_adapter(scratch_file("adapter"), model);
  save_adapter(scratch_file("adapter-again"), model);
  remove_lora(model);
  load_adapter(scratch_file("adapter-again"), model);
  remove_lora(model);
}

std::vector<Bytes> adapter_seeds() {
  use_cpu();
  std::vector<Bytes> seeds;
  for (const bool dora : {false, true}) {
    const auto folder = scratch_file(dora ? "seed-dora" : "seed-lora");
    Decoder model(small("llama"));
    add_lora(model, {.rank = 2, .dora = dora, .target_modules = {"q_proj", "up_proj"}});
    save_adapter(folder, model, {.base_model = "a"});
    seeds.push_back(join(file_bytes(folder / "adapter_config.json"),
                         file_bytes(folder / "adapter_model.safetensors")));
  }
  return seeds;
}

}  // namespace

std::vector<Target> decoder_targets() {
  using Words = std::vector<std::string_view>;
  Words json = json_words();
  for (const char* word :
       {"\"llama3\"", "\"yarn\"", "rope_parameters", "layer_types", "\"qwen3\"",
        "\"full_attention\"", "\"rope_type\"", "factor", "model-00001-of-00002.safetensors"})
    json.push_back(word);
  const Words binary = {std::string_view("\xff\xff\xff\xff\xff\xff\xff\x7f", 8),
                        std::string_view("\0\0\0\0\0\0\0\x40", 8),
                        std::string_view("\x09\0\0\0", 4),
                        std::string_view("\x0c\0\0\0", 4),
                        "llama.",
                        "general."};
  return {{"gguf", read_gguf, gguf_seeds, binary},
          {"gguf_decoder", read_gguf_decoder, gguf_decoder_seeds, binary},
          {"decoder_config", read_decoder, decoder_config_seeds, json},
          {"decoder_index", read_index, index_seeds, json},
          {"adapter", read_adapter_folder, adapter_seeds, json},
          {"nf4", read_nf4, nf4_seeds, json},
          {"file_list", read_file_list, file_list_seeds, {"from ", "without ", "rewind-new-"}}};
}

}  // namespace rw::fuzz
