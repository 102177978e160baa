// Decoders in folders of safetensors: one file or several, tied heads, and folders that lie.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "io/models/decoder.h"
#include "io/models/decoder/json.h"
#include "io/models/model.h"
#include "tests/fixtures/file_faults.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json json_of(const fs::path& file) {
  return json::parse(bytes_of(file));
}

void put_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// The message of the FileError of a load, or "loaded".
std::string load_refusal(const fs::path& folder, Decoder& model) {
  const std::vector<float> before = all_values(model);
  try {
    load_decoder(folder, model);
  } catch (const FileError& error) {
    CHECK(all_values(model) == before);
    return error.what();
  }
  return "loaded";
}

void check_load_refused(const fs::path& folder, Decoder& model, const char* why) {
  const std::string message = load_refusal(folder, model);
  CAPTURE(message);
  CAPTURE(std::string(why));
  CHECK(message.find(why) != std::string::npos);
}

// Saves the tensors of a model with changes in model.safetensors of a folder.
void save_changed(const fs::path& folder, const Decoder& model, auto&& change) {
  StateDict tensors = state_dict(model);
  change(tensors);
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("decoder files: a folder is read back, of each family") {
  set_default_device(open_backend("reference"));
  for (const DecoderConfig& config : small_decoders()) {
    CAPTURE(config.model_type);
    const TemporaryFolder folder;
    Decoder model(config);
    const SpecialTokens tokens{.bos = 1, .eos = {2, 3}, .pad = 0};
    save_decoder(folder.path / "new", model, {.tokens = tokens});
    CHECK(entries(folder.path / "new") == 4);
    const DecoderConfig found = read_decoder_config(folder.path / "new");
    Decoder again(found);
    load_decoder(folder.path / "new", again);
    CHECK(all_values(again) == all_values(model));
    CHECK(logits_of(again) == logits_of(model));
    CHECK(DecoderFiles(folder.path / "new").special_tokens() == tokens);
  }
}

TEST_CASE("decoder files: tensors of several files, with an index that counts their bytes") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const Decoder model(small_decoder("qwen3"));
  save_decoder(folder.path, model, {.dtype = DType::f16, .shard_bytes = 20000});
  const json index = json_of(folder.path / "model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == 2 * model.parameter_count());
  std::map<std::string, uint64_t> sizes;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const SafetensorsFile part(folder.path / file.get<std::string>());
    CHECK(part.metadata().at("format") == "pt");
    sizes[file] += part.tensors().at(name).bytes;
    CHECK(part.tensors().at(name).dtype == "F16");
  }
  CHECK(index["weight_map"].size() == model.parameters().size());
  REQUIRE(sizes.size() > 2);
  CHECK(sizes.begin()->first == fmt::format("model-00001-of-{:05}.safetensors", sizes.size()));
  for (const auto& [file, bytes] : sizes) CHECK(bytes <= 20000);
  Decoder again(model.config()), half(model.config());
  load_decoder(folder.path, again);
  half.half();
  load_decoder(folder.path, half);
  CHECK(all_values(again) == all_values(half));
  CHECK(json_of(folder.path / "config.json")["torch_dtype"] == "float16");
  // One file takes the place of several, and the other way round.
  save_decoder(folder.path, model);
  CHECK(entries(folder.path) == 4);
  load_decoder(folder.path, again);
  CHECK(all_values(again) == all_values(model));
  save_decoder(folder.path, model, {.shard_bytes = 1});
  CHECK(entries(folder.path) == std::ssize(model.parameters()) + 4);
  load_decoder(folder.path, half);
}

TEST_CASE("decoder files: a model in the dtype of its files is written as in f32") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto as = [&](DType held) { return folder.path / "as" / name(held); };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    save_decoder(folder.path / "from", Decoder(small_decoder("llama")), {.dtype = dtype});
    REQUIRE(DecoderFiles(folder.path / "from").stored_dtype() == dtype);
    for (const DType held : {dtype, DType::f32}) {
      Decoder model(small_decoder("llama"), held);
      load_decoder(folder.path / "from", model);
      save_decoder(as(held), model, {.dtype = DType::f16});
      save_decoder_gguf(as(held) / "q8.gguf", model, GgufType::q8_0);
    }
    for (const char* file : {"model.safetensors", "q8.gguf"})
      CHECK(bytes_of(as(dtype) / file) == bytes_of(as(DType::f32) / file));
  }
  save_decoder_gguf(folder.path / "f16.gguf", Decoder(small_decoder("llama")), GgufType::f16);
  CHECK(DecoderFiles(folder.path / "f16.gguf").stored_dtype() == DType::f16);
}

TEST_CASE("decoder files: a model is computed in the dtype that its files name") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder.path / "model.gguf", config = folder.path / "config.json";
  for (const char* type : {"llama", "gemma3_text"}) {
    CAPTURE(type);
    const Decoder model(small_decoder(type));
    const bool has_room = std::string_view(type) == "llama";  // activations stay within f16
    for (const auto& [stored, dtype] : {std::pair(GgufType::f32, DType::f32),
                                        {GgufType::f16, has_room ? DType::f16 : DType::bf16},
                                        {GgufType::bf16, DType::bf16},
                                        {GgufType::q8_0, DType::bf16}}) {
      save_decoder_gguf(file, model, stored);
      CHECK(DecoderFiles(file).working_dtype() == dtype);
    }
    for (const auto& [stored, dtype] : {std::pair(DType::f32, DType::f32),
                                        {DType::f16, has_room ? DType::f16 : DType::bf16},
                                        {DType::bf16, DType::bf16}}) {
      save_decoder(folder.path, model, {.dtype = stored});
      CHECK(DecoderFiles(folder.path).working_dtype() == dtype);
    }
    // The dtype of config.json, under either name, counts more than that of the tensors.
    for (const auto& [key, word, dtype] : {std::tuple("torch_dtype", "float32", DType::f32),
                                           {"dtype", "float32", DType::f32},
                                           {"dtype", "none", DType::bf16}}) {
      nlohmann::json json = json_of(config);
      json.erase("torch_dtype");
      json.erase("dtype");
      json[key] = word;
      std::ofstream(config) << json;
      std::filesystem::remove(folder.path / "rewind-files.txt");
      CHECK(DecoderFiles(folder.path).working_dtype() == dtype);
    }
  }
}

TEST_CASE("decoder files: a tied head may be there if it is the embeddings") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Decoder model(small_decoder("gemma"));
  const Tensor embeddings = model.head_weight().detach();
  Tensor copy = full(embeddings.shape(), 0);
  copy.copy_(embeddings);
  const auto save_with = [&](const std::string& name, const Tensor& head) {
    save_changed(folder.path, model, [&](StateDict& tensors) { tensors.push_back({name, head}); });
  };
  save_with("lm_head.weight", copy);
  CHECK(load_refusal(folder.path, model) == "loaded");
  save_with("model.layers.0.self_attn.rotary_emb.inv_freq", full({8}, 1));
  CHECK(load_refusal(folder.path, model) == "loaded");
  slice(copy, 0, 49, 50).copy_(full({1, 64}, 7));
  save_with("lm_head.weight", copy);
  check_load_refused(folder.path, model, "has a head that is not the embeddings");
  save_with("lm_head.weight", slice(copy, 0, 0, 7));
  check_load_refused(folder.path, model, "has a head that is not the embeddings");
  // The head alone, as safetensors' save_model writes two names of one tensor.
  save_changed(folder.path, model, [](StateDict& tensors) {
    for (NamedTensor& t : tensors)
      if (t.name == "model.embed_tokens.weight") t.name = "lm_head.weight";
  });
  Decoder again(model.config());
  load_decoder(folder.path, again);
  CHECK(all_values(again) == all_values(model));
  Decoder untied(small_decoder("llama"));
  save_changed(folder.path, untied, [&](StateDict& tensors) {
    std::erase_if(tensors, [](const NamedTensor& t) { return t.name == "lm_head.weight"; });
  });
  check_load_refused(folder.path, untied, "missing: lm_head.weight");
}

TEST_CASE("decoder files: a whole file counts before the parts of an index") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const Decoder old(small_decoder("llama")), fresh(small_decoder("llama"));
  save_decoder(folder.path, old, {.shard_bytes = 30000});
  fs::remove(folder.path / "rewind-files.txt");
  write_safetensors(folder.path / "model.safetensors", state_dict(fresh));
  Decoder found(small_decoder("llama"));
  load_decoder(folder.path, found);
  CHECK(all_values(found) == all_values(fresh));
  for (const auto& file : fs::directory_iterator(folder.path))
    if (file.path().filename().string().starts_with("model-")) fs::remove(file.path());
  load_decoder(folder.path, found);
  CHECK(all_values(found) == all_values(fresh));
}

TEST_CASE("decoder files: weights that 16 bits do not hold are refused by name") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Decoder model(small_decoder("llama"));
  const Tensor norm = state_dict(model).back().tensor;  // a view of the parameter
  const std::string name = state_dict(model).back().name;
  Tensor(norm).copy_(full(norm.shape(), 70000));
  const auto refusal = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("done");
  };
  const std::string wrong =
      refusal([&] { save_decoder(folder.path / "f16", model, {.dtype = DType::f16}); });
  CAPTURE(wrong);
  CHECK(wrong.find(name) != wrong.npos);
  CHECK(wrong.find("f16 does not hold, 70000") != wrong.npos);
  CHECK(wrong.find("bf16 or f32") != wrong.npos);
  CHECK(!fs::exists(folder.path / "f16" / "config.json"));
  CHECK(refusal([&] { save_decoder(folder.path / "bf16", model, {.dtype = DType::bf16}); }) ==
        "done");
  save_decoder(folder.path / "f32", model);
  Decoder half(model.config());
  half.half();
  CHECK(refusal([&] { load_decoder(folder.path / "f32", half); }).find(name) != wrong.npos);
  const StateDict tensors = state_dict(model);
  CHECK(refusal([&] {
          write_gguf(folder.path / "x.gguf", {{"big", tensors.back().tensor, GgufType::f16}}, {});
        }).find("\"big\"") != wrong.npos);
}

TEST_CASE("decoder files: names and shapes that do not agree") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Decoder model(small_decoder("llama"));
  check_load_refused(folder.path, model, "must have model.safetensors or");
  save_changed(folder.path, model, [](StateDict& t) { t[0].name = "other"; });
  check_load_refused(folder.path, model, "unexpected: other");
  save_changed(folder.path, model, [](StateDict& t) { t[1].tensor = full({3, 2}, 1); });
  check_load_refused(folder.path, model, "(3, 2)");
  save_changed(folder.path, model, [](StateDict& t) { t.push_back({"more", full({3}, 1)}); });
  check_load_refused(folder.path, model, "unexpected: more");
}

TEST_CASE("decoder files: an index that lies") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  Decoder model(small_decoder("llama"));
  save_decoder(folder.path, model, {.shard_bytes = 30000});
  fs::remove(folder.path / "rewind-files.txt");  // with which any other index is refused
  const fs::path file = folder.path / "model.safetensors.index.json";
  const json good = json_of(file);
  CHECK(load_refusal(folder.path, model) == "loaded");
  const auto refused = [&](const json& index, const char* why) {
    put_text(file, index.dump());
    check_load_refused(folder.path, model, why);
  };
  const auto with = [&](const std::string& name, const json& part) {
    json changed = good;
    changed["weight_map"][name] = part;
    return changed;
  };
  const std::string norm = "model.norm.weight";
  refused(json::array(), "a list of 0");
  refused(json::object(), "must have a weight_map");
  refused({{"weight_map", json::object()}}, "must have a weight_map");
  refused({{"weight_map", {1, 2}}}, "must have a weight_map");
  for (const char* part :
       {"../model.safetensors", "/etc/passwd", "a/b.safetensors", "config.json", "", ".."})
    refused(with(norm, part), "names of .safetensors files in its folder");
  refused(with(norm, 7), "got 7 for \"model.norm.weight\"");
  refused(with(norm, "none.safetensors"), "none.safetensors");
  const json other = good["weight_map"]["model.embed_tokens.weight"];
  refused(with(norm, other), "must have tensor \"model.norm.weight\"");
  refused(with("more", other), "must have tensor \"more\"");
  json fewer = good;
  for (const auto& [name, part] : good["weight_map"].items())
    if (part == good["weight_map"][norm]) fewer["weight_map"].erase(name);
  refused(fewer, "missing: ");
  put_text(file, "{\"weight_map\": {");
  check_load_refused(folder.path, model, "is not a sharded model's configuration");
}

TEST_CASE("decoder files: special tokens come from the first file that says something") {
  const TemporaryFolder folder;
  const fs::path config = folder.path / "config.json",
                 generation = folder.path / "generation_config.json";
  json shape = json::parse(decoder_config_json(small_decoders().front()).dump());
  put_text(config, shape.dump());
  CHECK(DecoderFiles(folder.path).special_tokens() == SpecialTokens{});
  shape.update({{"bos_token_id", 5}, {"eos_token_id", 6}, {"pad_token_id", nullptr}});
  put_text(config, shape.dump());
  CHECK(DecoderFiles(folder.path).special_tokens() == SpecialTokens{.bos = 5, .eos = {6}});
  put_text(generation, R"({"bos_token_id": null, "eos_token_id": [7, 8], "pad_token_id": 0})");
  CHECK(DecoderFiles(folder.path).special_tokens() ==
        SpecialTokens{.bos = 5, .eos = {7, 8}, .pad = 0});
  put_text(generation, R"({"eos_token_id": [-1], "pad_token_id": -1})");  // of old files
  CHECK(DecoderFiles(folder.path).special_tokens() == SpecialTokens{.bos = 5, .eos = {6}});
  for (const char* bad : {"-2", "1.5", "[1, \"2\"]", "{}", "2147483648"}) {
    put_text(generation, fmt::format(R"({{"eos_token_id": {}}})", bad));
    CHECK_THROWS_AS(DecoderFiles(folder.path).special_tokens(), FileError);
  }
}

TEST_CASE("decoder files: a disk that fails leaves the old model or the new one") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const Decoder old(small_decoder("llama")), fresh(small_decoder("qwen3"));
  const SaveDecoderOptions old_parts{.shard_bytes = 60000}, new_parts{.shard_bytes = 90000};
  int calls = 0;
  {
    const FileFaults counting;
    save_decoder(folder.path / "0", fresh, new_parts);
    calls = counting.calls();
  }
  int new_ones = 0;
  for (int at = 0; at < calls; ++at) {
    CAPTURE(at);
    const fs::path path = folder.path / std::to_string(at + 1);
    save_decoder(path, old, old_parts);
    const bool failed = fails([&] {
      const FileFaults faults({.at = at, .error = ENOSPC, .for_good = true});
      save_decoder(path, fresh, new_parts);
    });
    Decoder again(read_decoder_config(path));
    load_decoder(path, again);
    const bool is_new = again.config() == fresh.config();
    CHECK(all_values(again) == all_values(is_new ? fresh : old));
    CHECK((is_new || failed));
    new_ones += is_new;
    fs::remove_all(path);
  }
  CHECK(new_ones > 10);
  CHECK(calls - new_ones > 10);
}

TEST_SUITE_END();

}  // namespace rw::test
