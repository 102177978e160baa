#include "io/models/gpt.h"

#include "io/models/config_file.h"
#include "ops/ops.h"

namespace rw {

namespace {

using Json = nlohmann::ordered_json;

// Calls visit(key, member, lowest, highest) for everything that config.json and GptConfig share.
// The highest values are well above any GPT-2, so that a broken file is an error and not a program
// that runs for hours.
template <class Config, class F>
void for_each_gpt_key(Config& c, const F& visit) {
  visit("vocab_size", c.vocab_size, 1, 1 << 24);
  visit("n_positions", c.n_positions, 1, 1 << 24);
  visit("n_embd", c.n_embd, 1, 1 << 16);
  visit("n_layer", c.n_layer, 1, 10000);
  visit("n_head", c.n_head, 1, 1 << 16);
  visit("n_inner", c.n_inner, 1, 1 << 20);
  visit("resid_pdrop", c.resid_pdrop, 0, 0.999);
  visit("embd_pdrop", c.embd_pdrop, 0, 0.999);
  visit("attn_pdrop", c.attn_pdrop, 0, 0.999);
  visit("layer_norm_epsilon", c.layer_norm_epsilon, 0, 1);
  visit("initializer_range", c.initializer_range, 0, 100);
}

// Settings that files may name but for which this GPT has a single value.
const Json fixed_gpt_settings = {
    {"model_type", "gpt2"},         {"activation_function", "gelu_new"},
    {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
    {"add_cross_attention", false}, {"tie_word_embeddings", true}};

bool is_transposed(const std::string& name) {
  for (const char* part : {"c_attn.weight", "c_proj.weight", "c_fc.weight"})
    if (name.ends_with(part)) return true;
  return false;
}

// Whether it is a mask of attention, which old files hold, or the head, which is the word
// embeddings.
bool is_known(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name == "lm_head.weight";
}

}  // namespace

GptConfig read_gpt_config(const std::filesystem::path& file) {
  const nlohmann::json json = read_config("read_gpt_config", "GPT-2", file);
  check_settings("read_gpt_config", json, fixed_gpt_settings, file);
  GptConfig config;
  for_each_gpt_key(config, [&](const std::string& key, auto& value, auto low, auto high) {
    using T = std::remove_reference_t<decltype(value)>;
    if (key == "n_inner" && (!json.contains(key) || json[key].is_null())) return;
    if (json.contains(key)) value = json_number<T>(json, key, low, high, file.string());
  });
  check<FileError>(config.n_embd % config.n_head == 0, "read_gpt_config",
                   "'{}' must have an n_embd that its n_head divides, got {} and {}", file.string(),
                   config.n_embd, config.n_head);
  return config;
}

void write_gpt_config(const std::filesystem::path& file, const GptConfig& config) {
  Json json = {{"architectures", {"GPT2LMHeadModel"}}};
  json.update(fixed_gpt_settings);
  for_each_gpt_key(config, [&](const char* key, const auto& value, auto...) { json[key] = value; });
  if (config.n_inner == 0) json["n_inner"] = nullptr;
  AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

StateDict gpt_state_dict(const Module& model) {
  StateDict tensors = state_dict(model);
  for (NamedTensor& t : tensors)
    if (is_transposed(t.name)) t.tensor = transpose(t.tensor.detach(), 0, 1);
  return tensors;
}

void save_gpt(const std::filesystem::path& file, const Module& model, DType dtype) {
  write_safetensors(file, gpt_state_dict(model), {{"format", "pt"}}, dtype);
}

LoadResult load_gpt(const std::filesystem::path& path, Module& model) {
  const SafetensorsFile file(path);
  const std::string prefix = "transformer.";
  const bool file_has = file.tensors().contains(prefix + "wte.weight");
  StateDict tensors = gpt_state_dict(model);
  for (NamedTensor& t : tensors) {
    const bool has = t.name.starts_with(prefix);
    if (has && !file_has) t.name = t.name.substr(prefix.size());
    if (!has && file_has) t.name = prefix + t.name;
    check<FileError>(file.tensors().contains(t.name), "load_gpt", "'{}' has no {}", path.string(),
                     t.name);
  }
  LoadResult result = load_tensors(file, tensors, false);
  std::erase_if(result.unexpected, is_known);
  return result;
}

}  // namespace rw
