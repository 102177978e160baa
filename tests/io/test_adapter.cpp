// Adapters in PEFT's folders and in GGUF files: names, values and settings, and files that are
// refused.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <functional>

#include "io/formats/gguf.h"
#include "io/formats/safetensors.h"
#include "io/models/adapter.h"
#include "io/models/decoder.h"
#include "models/vit.h"
#include "nn/init.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/message_of.h"
#include "tests/io/decoder_fixture.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string q_proj = "model.layers.1.self_attn.q_proj";

// As PEFT 0.21 writes it.
const char* const config_of_peft = R"({
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
  "auto_mapping": null, "base_model_name_or_path": "some/model", "bias": "none",
  "corda_config": null, "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
  "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "kasa_config": null,
  "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
  "loftq_config": {}, "lora_alpha": 6, "lora_bias": false, "lora_dropout": 0.25,
  "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
  "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA",
  "peft_version": "0.21.2", "qalora_group_size": 16, "r": 3, "rank_pattern": {}, "revision": null,
  "target_modules": ["v_proj", "query", "q_proj"], "target_parameters": null,
  "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
  "use_dora": false, "use_qalora": false, "use_rslora": true, "velora_config": null
})";

std::unique_ptr<Decoder> adapted_decoder(const std::string& type, const LoraOptions& options) {
  manual_seed(1);
  auto model = std::make_unique<Decoder>(small_decoder(type));
  for (const NamedLora& a : add_lora(*model, options)) {
    init::normal_(a.adapter->B, 0, 0.3f);
    if (options.dora) a.adapter->magnitude.copy_(a.adapter->magnitude.detach() * 1.25f);
  }
  return model;
}

std::unique_ptr<Decoder> base_decoder(const std::string& type) {
  manual_seed(1);
  return std::make_unique<Decoder>(small_decoder(type));
}

Json config_in(const fs::path& folder) {
  return Json::parse(bytes_of(folder / "adapter_config.json"));
}

void write_adapter_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// A folder as PEFT writes it, with adapters of the queries and values.
void write_peft_folder(const fs::path& folder, const std::function<void(Json&)>& change = {},
                       const std::function<void(std::vector<NamedTensor>&)>& edit = {}) {
  Json json = Json::parse(config_of_peft);
  if (change) change(json);
  fs::create_directories(folder);
  write_adapter_text(folder / "adapter_config.json", json.dump(2));
  std::vector<NamedTensor> tensors;
  for (const int layer : {0, 1})
    for (const auto& [name, out] : {std::pair("q_proj", 64), std::pair("v_proj", 32)}) {
      const std::string at =
          fmt::format("base_model.model.model.layers.{}.self_attn.{}.lora_", layer, name);
      tensors.push_back({at + "A.weight", rand({3, 64}, -1, 1)});
      tensors.push_back({at + "B.weight", rand({out, 3}, -1, 1)});
    }
  if (edit) edit(tensors);
  write_safetensors(folder / "adapter_model.safetensors", tensors);
}

std::string adapter_refusal(const fs::path& folder) {
  const auto model = base_decoder("llama");
  const std::string said = message_of<FileError>([&] { load_adapter(folder, *model); });
  CHECK(lora_adapters(*model).empty());
  CHECK(model->parameters().front().requires_grad());
  return said;
}

std::vector<float> values_in(const GgufFile& file, const std::string& name) {
  const Tensor target = empty(file.tensors().at(name).shape);
  file.read(name, target);
  return target.to_vector();
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("adapter: a folder is read back, of each form") {
  set_default_device(open_backend("reference"));
  for (const LoraOptions& options :
       {LoraOptions{.rank = 4}, LoraOptions{.rank = 4, .dropout = 0.125f, .rank_stabilized = true},
        LoraOptions{
            .rank = 4, .alpha = 6, .dora = true, .target_modules = {"q_proj", "lm_head"}}}) {
    const TemporaryFolder folder;
    const auto model = adapted_decoder("llama", options);
    model->eval();
    save_adapter(folder.path, *model, {.base_model = "a/b"});
    const Json json = config_in(folder.path);
    CHECK(json["peft_type"] == "LORA");
    CHECK(json["task_type"] == "CAUSAL_LM");
    CHECK(json["base_model_name_or_path"] == "a/b");
    CHECK(json["r"] == 4);
    CHECK(json["lora_alpha"] == options.alpha);
    CHECK(json["lora_dropout"] == options.dropout);
    CHECK(json["use_rslora"] == options.rank_stabilized);
    CHECK(json["use_dora"] == options.dora);
    CHECK(json["bias"] == "none");
    using Names = std::vector<std::string>;
    CHECK(json["target_modules"].get<Names>() ==
          (options.dora ? Names{"lm_head", "q_proj"}
                        : Names{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj",
                                "v_proj"}));
    const SafetensorsFile file(folder / "adapter_model.safetensors");
    const std::string at = "base_model.model." + q_proj;
    CHECK(file.tensors().at(at + ".lora_A.weight").shape == Shape{4, 64});
    CHECK(file.tensors().at(at + ".lora_B.weight").shape == Shape{64, 4});
    CHECK(file.tensors().contains(at + ".lora_magnitude_vector") == options.dora);
    CHECK(file.tensors().size() == (options.dora ? 9 : 28));

    const auto [read, info] = read_adapter_config(folder.path);
    CHECK(read.rank == 4);
    CHECK(read.alpha == options.alpha);
    CHECK(read.dropout == options.dropout);
    CHECK(read.rank_stabilized == options.rank_stabilized);
    CHECK(read.dora == options.dora);
    CHECK(info.base_model == "a/b");
    CHECK(info.task_type == "CAUSAL_LM");
    const auto other = base_decoder("llama");
    other->eval();
    CHECK(logits_of(*other) != logits_of(*model));
    CHECK(load_adapter(folder.path, *other).size() == lora_adapters(*model).size());
    CHECK(logits_of(*other) == logits_of(*model));
    CHECK(!other->parameters().front().requires_grad());
  }
}

TEST_CASE("adapter: layers whose last names others have, too, are named in full") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto model = adapted_decoder("qwen3", {.rank = 2, .target_modules = {q_proj}});
  save_adapter(folder / "a", *model);
  CHECK(config_in(folder / "a")["target_modules"] == Json::array({q_proj}));
  const auto other = base_decoder("qwen3");
  CHECK(load_adapter(folder / "a", *other).front().name == q_proj);
  // A later adapter replaces it.
  remove_lora(*model);
  add_lora(*model, {.rank = 2, .target_modules = {"up_proj"}});
  write_adapter_text(folder / "a/adapter_model.bin", "old");
  save_adapter(folder / "a", *model);
  CHECK(!fs::exists(folder / "a/adapter_model.bin"));
  remove_lora(*other);
  CHECK(load_adapter(folder / "a", *other).front().name == "model.layers.0.mlp.up_proj");
}

TEST_CASE("adapter: what PEFT writes is read") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  write_peft_folder(folder.path);
  const auto model = base_decoder("llama");
  const auto adapters = load_adapter(folder.path, *model);
  REQUIRE(adapters.size() == 4);
  CHECK(adapters[3].name == "model.layers.1.self_attn.v_proj");
  const LoraOptions& o = adapters[3].adapter->options();
  CHECK(o.rank == 3);
  CHECK(o.dropout == 0.25f);
  CHECK(o.scale() == doctest::Approx(6 / std::sqrt(3.0)));
  const SafetensorsFile file(folder / "adapter_model.safetensors");
  const Tensor b = empty({32, 3});
  file.read("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight", b);
  CHECK(adapters[3].adapter->B.to_vector() == b.to_vector());
  // An expression for the layers is not evaluated: the tensors have their names.
  write_peft_folder(folder.path, [](Json& j) { j["target_modules"] = ".*\\.[qv]_proj"; });
  CHECK(load_adapter(folder.path, *base_decoder("llama")).size() == 4);
}

// PEFT looks for a name at the end of a layer's.
TEST_CASE("adapter: ranks and alphas by patterns") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto patterns = [](Json& j) {
    j["use_rslora"] = false;
    j["rank_pattern"] = {{q_proj, 5}};
    j["alpha_pattern"] = {{"q_proj", 12.5}, {"layers.0.self_attn.v_proj", 2}, {"j_proj", 9}};
  };
  const auto wider = [](std::vector<NamedTensor>& tensors) {
    for (NamedTensor& t : tensors)
      if (t.name.find("layers.1.self_attn.q_proj") != std::string::npos)
        t.tensor = t.name.ends_with("A.weight") ? rand({5, 64}, -1, 1) : rand({64, 5}, -1, 1);
  };
  write_peft_folder(folder / "peft", patterns, wider);
  const auto model = base_decoder("llama");
  const auto adapters = load_adapter(folder / "peft", *model);
  REQUIRE(adapters.size() == 4);  // q and v of layer 0, q and v of layer 1
  const std::vector<std::pair<int64_t, double>> wanted = {{3, 12.5}, {3, 2}, {5, 12.5}, {3, 6}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const LoraOptions& o = adapters[i].adapter->options();
    CHECK(std::pair(o.rank, o.alpha) == wanted[i]);
    CHECK(o.scale() == wanted[i].second / static_cast<double>(wanted[i].first));
    CHECK(adapters[i].adapter->A.size(0) == o.rank);
  }
  // They are written by the names of layers, and read again.
  save_adapter(folder / "ours", *model);
  const Json json = config_in(folder / "ours");
  CHECK(json["r"] == 3);
  CHECK(json["rank_pattern"] == Json{{q_proj, 5}});
  CHECK(json["alpha_pattern"].size() == 2);
  const auto other = base_decoder("llama");
  load_adapter(folder / "ours", *other);
  model->eval(), other->eval();
  CHECK(logits_of(*other) == logits_of(*model));
  // In GGUF, one alpha is of all.
  save_adapter_gguf(folder / "a.gguf", *model);
  const GgufFile file(folder / "a.gguf");
  CHECK(file.number("adapter.lora.alpha", 0, 100) == 12.5);
  const std::vector<float> b = adapters[3].adapter->B.to_vector(),
                           stored = values_in(file, "blk.1.attn_v.weight.lora_b");
  for (size_t i = 0; i < b.size(); ++i) CHECK(stored[i] == doctest::Approx(b[i] * 6 / 12.5));
  CHECK(values_in(file, "blk.0.attn_q.weight.lora_a") == adapters[0].adapter->A.to_vector());
  // The tensors must have these ranks, and a name must be clear.
  write_peft_folder(folder / "narrow", patterns);
  CHECK(contains(adapter_refusal(folder / "narrow"), "the shape (5, 64)"));
  write_peft_folder(folder / "two", [](Json& j) {
    j["alpha_pattern"] = {{"q_proj", 4}, {q_proj, 5}};
  });
  CHECK(contains(adapter_refusal(folder / "two"), "one name for a layer"));
}

TEST_CASE("adapter: settings that are not supported are refused by name") {
  set_default_device(open_backend("reference"));
  const auto said = [](const char* key, const Json& value) {
    const TemporaryFolder folder;
    write_peft_folder(folder.path, [&](Json& j) { j[key] = value; });
    const std::string message = adapter_refusal(folder.path);
    CAPTURE(message);
    CHECK(contains(message, key));
    CHECK(contains(message, (folder.path / "adapter_config.json").string()));
  };
  said("peft_type", "IA3");
  said("peft_type", nullptr);
  said("bias", "lora_only");
  said("modules_to_save", {"lm_head"});
  said("layers_to_transform", {1});
  said("layer_replication", {{0, 1}});
  said("rank_pattern", {{".*\\.q_proj", 3}});
  said("rank_pattern", {{"", 3}});
  said("rank_pattern", {{"q_proj", 3.5}});
  said("rank_pattern", {{"q_proj", 0}});
  said("rank_pattern", {"q_proj"});
  said("alpha_pattern", {{"q_proj", "4"}});
  said("trainable_token_indices", {1, 2});
  said("lora_bias", true);
  said("use_qalora", true);
  said("init_lora_weights", "pissa_niter_16");
  said("r", 0);
  said("r", "3");
  said("lora_alpha", 0);
  said("lora_dropout", 1);
  said("use_dora", 1);
  said("target_modules", {1});
}

TEST_CASE("adapter: tensors that are not those of the model are refused by name") {
  set_default_device(open_backend("reference"));
  const std::string at = "base_model.model." + q_proj;
  using Tensors = std::vector<NamedTensor>;
  const auto said = [](const std::function<void(Tensors&)>& edit,
                       const std::function<void(Json&)>& change = {}) {
    const TemporaryFolder folder;
    write_peft_folder(folder.path, change, edit);
    return adapter_refusal(folder.path);
  };
  const auto renames = [](const std::string& from, const std::string& to) {
    return [=](Tensors& tensors) {
      for (NamedTensor& t : tensors)
        if (t.name == from) t.name = to;
    };
  };
  const std::string a = at + ".lora_A.weight";
  CHECK(contains(said(renames(a, "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight")),
                 "would do nothing"));
  CHECK(
      contains(said(renames(a, q_proj + ".lora_A.weight")), "must have tensors base_model.model."));
  CHECK(contains(said(renames(a, "base_model.model.lm_head.weight")), "not supported"));
  CHECK(contains(said(renames(a, at + ".lora_magnitude_vector")), "missing: " + a));
  CHECK(contains(said([](Tensors& t) { t.clear(); }), "has no tensors"));
  CHECK(contains(said([](Tensors& t) { t.pop_back(); }), "missing"));
  CHECK(contains(said([](Tensors& t) { t.back().tensor = rand({64, 3}); }), "other shapes"));
  CHECK(contains(said({}, [](Json& j) { j["r"] = 1 << 20; }), "the shape (1048576, 64)"));
  CHECK(contains(said([](Tensors& t) { t.front().tensor = rand({3, 65}); }), "the shape (3, 64)"));
  CHECK(contains(said({}, [](Json& j) { j["use_dora"] = true; }), "lora_magnitude_vector"));
  CHECK(contains(said({},
                      [](Json& j) {
                        j["target_modules"] = {"q_proj", "v_proj", "o_proj"};
                      }),
                 "o_proj"));
  CHECK(contains(said({}, [](Json& j) { j["target_modules"] = {"q_proj"}; }), "unexpected"));
  const TemporaryFolder folder;
  CHECK(contains(adapter_refusal(folder.path), "adapter_config.json"));
  write_peft_folder(folder.path);
  fs::remove(folder / "adapter_model.safetensors");
  CHECK(contains(adapter_refusal(folder.path), "adapter_model.safetensors"));
}

TEST_CASE("adapter: models with adapters") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto model = adapted_decoder("llama", {.rank = 2, .dora = true});
  const auto said = [&](auto&& body) { return message_of<ValueError>(body); };
  CHECK(contains(said([&] { save_decoder(folder.path, *model); }), "merge_lora"));
  CHECK(contains(said([&] { save_decoder_gguf(folder / "m.gguf", *model, GgufType::f32); }),
                 "merge_lora"));
  CHECK(contains(said([&] { save_adapter_gguf(folder / "a.gguf", *model); }), "DoRA"));
  save_adapter(folder / "a", *model);
  CHECK(contains(said([&] { load_adapter(folder / "a", *model); }), "no adapters yet"));
  const std::vector<float> adapted = logits_of(*model);
  merge_lora(*model);
  CHECK(contains(said([&] { save_adapter(folder / "b", *model); }), "got none"));
  CHECK(contains(said([&] { save_adapter_gguf(folder / "b.gguf", *model); }), "got none"));
  save_decoder(folder / "merged", *model);
  const auto other = base_decoder("llama");
  load_decoder(folder / "merged", *other);
  const std::vector<float> merged = logits_of(*other);
  for (size_t i = 0; i < merged.size(); ++i)
    CHECK(merged[i] == doctest::Approx(adapted[i]).epsilon(1e-4).scale(1));
  ViT vit({.image_size = 8, .patch_size = 4, .hidden = 16, .layers = 1, .heads = 2, .mlp = 24});
  add_lora(vit, {.rank = 2});
  CHECK(contains(said([&] { save_adapter(folder / "v", vit); }), "in_proj"));
}

// llama.cpp adds alpha / rank B A to the weight of the same name.
TEST_CASE("adapter gguf: a file and the base's make the merged model") {
  set_default_device(open_backend("reference"));
  for (const std::string type : {"llama", "mistral", "qwen3", "gemma3_text"}) {
    CAPTURE(type);
    const TemporaryFolder folder;
    const auto base = base_decoder(type);
    const auto model =
        adapted_decoder(type, {.rank = 4, .alpha = 6, .rank_stabilized = type == "qwen3"});
    save_decoder_gguf(folder / "base.gguf", *base, GgufType::f32);
    save_adapter_gguf(folder / "adapter.gguf", *model);
    merge_lora(*model);
    save_decoder_gguf(folder / "merged.gguf", *model, GgufType::f32);
    const GgufFile base_file(folder / "base.gguf"), adapter(folder / "adapter.gguf"),
        merged(folder / "merged.gguf");
    CHECK(adapter.text("general.type") == "adapter");
    CHECK(adapter.text("general.architecture") == base_file.text("general.architecture"));
    CHECK(adapter.text("adapter.type") == "lora");
    const double alpha = adapter.number("adapter.lora.alpha", 0, 100);
    CHECK(alpha == doctest::Approx(type == "qwen3" ? 12 : 6));
    size_t found = 0;
    for (const auto& [name, stored] : merged.tensors()) {
      CAPTURE(name);
      if (!adapter.tensors().contains(name + ".lora_a")) {
        CHECK(values_in(merged, name) == values_in(base_file, name));
        continue;
      }
      found += 2;
      const Shape a = adapter.tensors().at(name + ".lora_a").shape,
                  b = adapter.tensors().at(name + ".lora_b").shape;
      CHECK(a == Shape{4, stored.shape[1]});
      CHECK(b == Shape{stored.shape[0], 4});
      const Tensor sum = tensor(values_in(base_file, name), stored.shape) +
                         matmul(tensor(values_in(adapter, name + ".lora_b"), b),
                                tensor(values_in(adapter, name + ".lora_a"), a)) *
                             (alpha / 4);
      const Tensor difference = sum - tensor(values_in(merged, name), stored.shape);
      CHECK(max(abs(difference)).item() < 1e-5);
    }
    CHECK(found == adapter.tensors().size());
    CHECK(found == 2 * 7 * static_cast<size_t>(base->config().num_hidden_layers));
  }
}

TEST_SUITE_END();

}  // namespace rw::test
