#include "io/models/decoder.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "core/files/folder.h"
#include "io/formats/transfer.h"
#include "io/models/config_file.h"
#include "io/models/decoder_gguf.h"
#include "io/models/decoder_json.h"
#include "io/models/model.h"
#include "nn/adapters/lora.h"

namespace rw {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

const std::string head = "lm_head.weight", embeddings = "model.embed_tokens.weight";
const std::string whole_file = "model.safetensors", index_file = whole_file + ".index.json";

void write_json(const fs::path& file, const OrderedJson& json) {
  AtomicFile out(file);
  out.write(json.dump(2) + "\n");
  out.commit();
}

// ---- special tokens -----------------------------------------------------------------------------

// One number or a list of them; nothing if it is missing or null. Old files have -1 for none.
std::vector<int64_t> token_ids(const nlohmann::json& json, const std::string& key,
                               const fs::path& file) {
  if (!json.contains(key) || json[key].is_null()) return {};
  const nlohmann::json& value = json[key];
  const std::string what = fmt::format("{} of '{}'", key, file.string());
  std::vector<int64_t> ids;
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value}))
    ids.push_back(bounded_number<int64_t>(id, -1, INT32_MAX, what));
  std::erase(ids, -1);
  return ids;
}

std::optional<int64_t> first_of(const std::vector<int64_t>& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

OrderedJson tokens_json(const SpecialTokens& tokens) {
  const auto one = [](const std::optional<int64_t>& id) {
    return id ? OrderedJson(*id) : OrderedJson(nullptr);
  };
  OrderedJson json = {{"bos_token_id", one(tokens.bos)},
                      {"eos_token_id", tokens.eos},
                      {"pad_token_id", one(tokens.pad)}};
  if (tokens.eos.size() < 2) json["eos_token_id"] = one(first_of(tokens.eos));
  return json;
}

SpecialTokens gguf_tokens(const GgufFile& file) {
  const auto id = [&](const char* name) -> std::optional<int64_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!file.has(key)) return {};
    return file.integer(key, 0, INT32_MAX);
  };
  SpecialTokens tokens{.bos = id("bos"), .pad = id("padding")};
  if (const char* all = "tokenizer.ggml.eos_token_ids"; file.has(all)) {
    const auto& ends = file.list<int32_t>(all);
    tokens.eos.assign(ends.begin(), ends.end());
    return tokens;
  }
  for (const char* name : {"eos", "eot", "eom"})  // eot ends a turn of a chat, eom a message
    if (const auto found = id(name); found && !std::ranges::count(tokens.eos, *found))
      tokens.eos.push_back(*found);
  return tokens;
}

// ---- tensors of a folder ------------------------------------------------------------------------

// The files of the index and the names that it says are in each.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& file) {
  const nlohmann::json json = read_config("load_decoder", "sharded model's", file);
  check<FileError>(
      json.contains("weight_map") && json["weight_map"].is_object() && !json["weight_map"].empty(),
      "load_decoder", "'{}' must have a weight_map with a file for each tensor", file.string());
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [name, where] : json["weight_map"].items()) {
    const std::string part = where.is_string() ? where.get<std::string>() : "";
    // A name with a folder could lead anywhere.
    check<FileError>(part.ends_with(".safetensors") && fs::path(part).filename() == part,
                     "load_decoder",
                     "'{}' must have names of .safetensors files in its folder, got {} for {:?}",
                     file.string(), describe_json(where), name);
    names[part].push_back(name);
  }
  return names;
}

// As in transformers, a whole file counts before the parts of an index.
std::list<SafetensorsFile> open_folder(const fs::path& folder) {
  std::list<SafetensorsFile> files;
  const fs::path index = path_in(folder, index_file), whole = path_in(folder, whole_file);
  if (fs::exists(whole)) {
    files.emplace_back(whole);
    return files;
  }
  check<FileError>(fs::exists(index), "load_decoder",
                   "'{}' must have {} or {}; other formats are not read", folder.string(),
                   whole_file, index_file);
  for (const auto& [part, names] : read_index(index)) {
    const auto& tensors = files.emplace_back(path_in(folder, part)).tensors();
    for (const std::string& name : names)
      check<FileError>(tensors.contains(name), "load_decoder",
                       "'{}' must have tensor {:?}, as {} says", (folder / part).string(), name,
                       index_file);
  }
  return files;
}

const SafetensorsFile* file_with(const std::list<SafetensorsFile>& files, const std::string& name) {
  for (const SafetensorsFile& file : files)
    if (file.tensors().contains(name)) return &file;
  return nullptr;
}

// FileError if there is a head that is not the embeddings.
void check_tied_head(const std::list<SafetensorsFile>& files) {
  const SafetensorsFile *a = file_with(files, head), *b = file_with(files, embeddings);
  if (!a || !b) return;
  const StoredTensor &x = a->tensors().find(head)->second,
                     &y = b->tensors().find(embeddings)->second;
  bool same = x.dtype == y.dtype && x.shape == y.shape;
  const InputFile a_file(a->path()), b_file(b->path());
  std::vector<std::byte> a_piece(1 << 20), b_piece;
  for (uint64_t done = 0; same && done < x.bytes; done += a_piece.size()) {
    a_piece.resize(std::min<uint64_t>(a_piece.size(), x.bytes - done));
    b_piece.resize(a_piece.size());
    a_file.read(x.offset + done, a_piece);
    b_file.read(y.offset + done, b_piece);
    same = a_piece == b_piece;
  }
  check<FileError>(same, "load_decoder",
                   "'{}' has a head that is not the embeddings, although its configuration says "
                   "tie_word_embeddings",
                   a->path());
}

void load_folder(const fs::path& folder, const Decoder& model) {
  check_folder(folder);
  if (fs::exists(path_in(folder, whole_file)) && fs::exists(path_in(folder, index_file)))
    fmt::print(stderr, "note: '{}' has {} and {}: the parts of the latter are not read\n",
               folder.string(), whole_file, index_file);
  const std::list<SafetensorsFile> files = open_folder(folder);
  std::set<std::string> ignored;
  if (model.config().tie_word_embeddings) {
    check_tied_head(files);
    ignored.insert(head);
  }
  for (const SafetensorsFile& file : files)
    for (const auto& [name, stored] : file.tensors())
      if (name.ends_with("rotary_emb.inv_freq")) ignored.insert(name);  // old files have them
  StateDict wanted = state_dict(model);
  // There may be only the head: safetensors' save_model writes one of two names for a tensor.
  if (model.config().tie_word_embeddings && !file_with(files, embeddings) &&
      file_with(files, head)) {
    ignored.erase(head);
    wanted = renamed(std::move(wanted), {{embeddings, head}});
  }
  std::erase_if(wanted, [&](const NamedTensor& t) {
    return stays_in_file(t.tensor) && (ignored.insert(t.name), true);
  });
  load_tensors(files, wanted, ignored);
}

std::vector<WeightInFile> matrices_in_folder(const fs::path& folder, const Decoder& model) {
  const std::list<SafetensorsFile> files = open_folder(folder);
  std::vector<WeightInFile> found;
  for (const auto& [name, matrix] : model.named_parameters()) {
    if (!stays_in_file(matrix)) continue;
    const bool is_tied = name == embeddings && model.config().tie_word_embeddings;
    const SafetensorsFile* file = file_with(files, name);
    const std::string& stored_as = !file && is_tied ? head : name;
    if (!file) file = file_with(files, stored_as);
    check<FileError>(file != nullptr, "load_decoder", "'{}' has no tensor {}", folder.string(),
                     name);
    const StoredTensor& stored = file->tensors().find(stored_as)->second;
    check<FileError>(
        stored.dtype == stored_name(matrix.dtype()) && stored.shape == matrix.shape(),
        "load_decoder", "tensor {:?} of '{}' must be {} {} to stay in the file, got {} {}", name,
        file->path(), stored_name(matrix.dtype()), matrix.shape(), stored.dtype, stored.shape);
    found.push_back({matrix, {file->path(), {{stored.offset, 0, stored.bytes}}}});
  }
  return found;
}

using MatrixTypes = std::set<std::string, std::less<>>;  // by the names that files have for them

MatrixTypes matrix_types(const fs::path& path) {
  MatrixTypes types;
  if (is_gguf(path)) {
    const GgufFile file(path);
    for (const auto& [name, stored] : file.tensors())
      if (stored.shape.rank() > 1) types.emplace(stored.type->name);
  } else {
    for (const SafetensorsFile& file : open_folder(path))
      for (const auto& [name, stored] : file.tensors())
        if (stored.shape.rank() > 1) types.insert(stored.dtype);
  }
  return types;
}

bool is_float_type(const std::string& type) {
  return type == "F32" || type == "F16" || type == "BF16";
}

// The dtype to compute matrices of these types in. Quantised ones were published in one of 16 bits,
// mostly bf16, whose range they need.
DType dtype_of(const MatrixTypes& types) {
  if (types.contains("BF16") || !std::ranges::all_of(types, is_float_type)) return DType::bf16;
  return types.contains("F16") ? DType::f16 : DType::f32;
}

// The dtype that the folder's config.json names, as transformers has it, if it does.
std::optional<DType> named_dtype(const fs::path& path) {
  if (is_gguf(path)) return {};
  const nlohmann::json json =
      read_config("working_dtype", "decoder's", path_in(path, "config.json"));
  constexpr std::pair<const char*, DType> names[] = {
      {"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16}};
  for (const char* key : {"dtype", "torch_dtype"})
    for (const auto& [word, dtype] : names)
      if (json.contains(key) && json[key] == word) return dtype;
  return {};
}

// The tensors of each file, in their order.
std::vector<StateDict> shards(const Module& model, const SaveDecoderOptions& options,
                              uint64_t& total) {
  std::vector<StateDict> parts(1);
  uint64_t taken = 0;
  total = 0;
  for (NamedTensor& t : state_dict(model)) {
    const uint64_t bytes = static_cast<uint64_t>(t.tensor.numel()) * size_of(options.dtype);
    if (taken + bytes > options.shard_bytes && !parts.back().empty()) {
      parts.emplace_back();
      taken = 0;
    }
    parts.back().push_back(std::move(t));
    taken += bytes;
    total += bytes;
  }
  return parts;
}

void check_merged(const char* op, const Decoder& model) {
  check(lora_adapters(model).empty(), op,
        "the model has adapters, which its files do not hold; merge them (merge_lora), or save "
        "them apart (save_adapter)");
}

// The files of an older model that a new one of other files would be mixed with. Those of its
// tokenizer stay if no tokenizer comes with the new one.
bool is_of_old_model(const std::string& name, bool has_tokenizer) {
  if (name == index_file || (name.starts_with("model") && name.ends_with(".safetensors")))
    return true;
  constexpr std::array of_tokenizers = {
      "added_tokens.json",       "chat_template.jinja", "chat_template.json", "merges.txt",
      "special_tokens_map.json", "tokenizer.model",     "vocab.json"};
  return has_tokenizer && std::ranges::find(of_tokenizers, name) != of_tokenizers.end();
}

}  // namespace

DecoderConfig read_decoder_config(const fs::path& path) {
  if (is_gguf(path)) return parse_decoder_metadata(GgufFile(path));
  const fs::path file = path.extension() == ".json" ? path : path_in(path, "config.json");
  return parse_decoder_config(read_config("read_decoder_config", "decoder's", file), file);
}

SpecialTokens read_special_tokens(const fs::path& path) {
  if (is_gguf(path)) return gguf_tokens(GgufFile(path));
  std::vector<std::pair<fs::path, nlohmann::json>> files;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = path_in(path, name);
    if (fs::exists(file))
      files.emplace_back(file, read_config("read_special_tokens", "decoder's", file));
  }
  // The first file that says something of a token counts.
  const auto find = [&](const char* key) {
    for (const auto& [file, json] : files)
      if (const auto ids = token_ids(json, key, file); !ids.empty()) return ids;
    return std::vector<int64_t>{};
  };
  return {first_of(find("bos_token_id")), find("eos_token_id"), first_of(find("pad_token_id"))};
}

DType decoder_dtype(const fs::path& path) {
  const MatrixTypes types = matrix_types(path);
  if (types.size() != 1) return DType::f32;
  return *types.begin() == "F16" ? DType::f16 : *types.begin() == "BF16" ? DType::bf16 : DType::f32;
}

DType working_dtype(const fs::path& path) {
  const DType named = named_dtype(path).value_or(dtype_of(matrix_types(path)));
  const bool overflows = named == DType::f16 && read_decoder_config(path).is_gemma();
  return overflows ? DType::bf16 : named;
}

DecoderTypes read_decoder_types(const fs::path& path) {
  if (!is_gguf(path)) return {};
  const GgufFile file(path);
  return decoder_types(file, parse_decoder_metadata(file));
}

bool is_quantised(const fs::path& path) {
  return is_gguf(path) && is_quantised(GgufFile(path));
}

void load_decoder(const fs::path& path, Decoder& model) {
  if (!is_gguf(path)) return load_folder(path, model);
  load_decoder_tensors(GgufFile(path), model, model.config());
}

bool holds_matrices_as(const fs::path& path, DType dtype) {
  return std::ranges::all_of(matrix_types(path), [&](const std::string& type) {
    return type == stored_name(dtype) || (is_gguf(path) && !is_float_type(type));
  });
}

std::vector<WeightInFile> matrices_in_file(const fs::path& path, const Decoder& model) {
  if (!model.parameters().front().device().backend().is_dry())
    return is_gguf(path) ? matrices_in_gguf(GgufFile(path), model, model.config())
                         : matrices_in_folder(path, model);
  std::vector<WeightInFile> found;
  const auto add = [&](const Tensor& matrix) {
    if (stays_in_file(matrix)) found.push_back({matrix, {"", {{0, 0, matrix.bytes()}}}});
  };
  for (const Tensor& parameter : model.parameters()) add(parameter);
  for (const NamedTensor& buffer : model.named_buffers()) add(buffer.tensor);
  return found;
}

void save_decoder(const fs::path& folder, const Decoder& model, const SaveDecoderOptions& options) {
  check_merged("save_decoder", model);
  check_has_floats(model);
  OrderedJson json = decoder_config_json(model.config());
  json.update(tokens_json(options.tokens));
  json["torch_dtype"] = options.dtype == DType::f16    ? "float16"
                        : options.dtype == DType::bf16 ? "bfloat16"
                                                       : "float32";
  uint64_t total = 0;
  const std::vector<StateDict> parts = shards(model, options, total);
  AtomicFolder files(folder);
  OrderedJson weight_map = OrderedJson::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name =
        parts.size() == 1 ? whole_file
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    write_safetensors(files.staged() / name, parts[i], {{"format", "pt"}}, options.dtype);
    for (const NamedTensor& t : parts[i]) weight_map[t.name] = name;
  }
  if (parts.size() > 1)
    write_json(files.staged() / index_file,
               {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}});
  write_json(files.staged() / "generation_config.json", tokens_json(options.tokens));
  write_json(files.staged() / "config.json", json);
  if (options.write_tokenizer) options.write_tokenizer(files.staged());
  files.commit([&](const std::string& name) {
    return is_of_old_model(name, options.write_tokenizer != nullptr);
  });
}

void save_decoder_gguf(const fs::path& file, const Decoder& model, GgufType type,
                       const GgufMetadata& more) {
  check_merged("save_decoder_gguf", model);
  GgufMetadata metadata = decoder_metadata(model.config(), type);
  metadata.insert(more.begin(), more.end());
  write_gguf(file, decoder_tensors(model, model.config(), type), metadata);
}

}  // namespace rw
