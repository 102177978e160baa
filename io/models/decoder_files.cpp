#include "io/models/decoder_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <list>
#include <map>
#include <set>

#include "core/base/hash.h"
#include "core/blocks/nf4.h"
#include "core/files/folder.h"
#include "io/formats/transfer.h"
#include "io/models/config_file.h"
#include "io/models/decoder/gguf.h"
#include "io/models/decoder/json.h"
#include "io/models/decoder/nf4.h"
#include "io/models/model.h"

namespace rw {

namespace {

namespace fs = std::filesystem;

const std::string head = "lm_head.weight", embeddings = "model.embed_tokens.weight";

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

// As in transformers, a whole file counts before the parts of an index. None if there is neither.
std::list<SafetensorsFile> open_folder(const fs::path& folder) {
  std::list<SafetensorsFile> files;
  const fs::path index = path_in(folder, decoder_index_file),
                 whole = path_in(folder, decoder_tensors_file);
  if (fs::exists(whole)) {
    files.emplace_back(whole);
    return files;
  }
  if (!fs::exists(index)) return files;
  for (const auto& [part, names] : read_index(index)) {
    const auto& tensors = files.emplace_back(path_in(folder, part)).tensors();
    for (const std::string& name : names)
      check<FileError>(tensors.contains(name), "load_decoder",
                       "'{}' must have tensor {:?}, as {} says", (folder / part).string(), name,
                       decoder_index_file);
  }
  return files;
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

// A weight in NF4, and the parameter or buffer of the model that it goes to.
struct Nf4Target {
  const StoredNf4* from;
  const BlockMatrix* blocks;  // null: the model has floats
  Tensor floats;

  void read() const {
    if (blocks) return from->read(*blocks);
    const Shape& shape = from->shape();
    const BlockMatrix matrix(
        empty(BlockMatrix::stored_shape(shape[0], shape[1], blocks::nf4), DType::u8), blocks::nf4);
    from->read(matrix);
    Tensor(floats).copy_(dequantize(matrix, floats.dtype()));
  }
};

// Takes them out of `wanted`, and the tensors of which they consist into `ignored`.
std::vector<Nf4Target> take_nf4(const std::map<std::string, StoredNf4>& stored,
                                const Decoder& model, StateDict& wanted,
                                std::set<std::string>& ignored) {
  const auto in_blocks = all_blocks(model);
  for (const auto& [weight, matrix] : in_blocks)
    check<FileError>(stored.contains(weight) && &matrix->type() == &blocks::nf4, "load_decoder",
                     "the folder must have {:?} in {}, as the model", weight, matrix->type().name);
  std::vector<Nf4Target> targets;
  for (const auto& [weight, from] : stored) {
    for (const std::string& name : from.tensors()) ignored.insert(name);
    const auto found = in_blocks.find(weight);
    const BlockMatrix* const matrix = found == in_blocks.end() ? nullptr : found->second;
    const auto to = std::ranges::find_if(wanted, [&](const NamedTensor& t) {
      return matrix ? t.tensor.impl().storage == matrix->codes().impl().storage : t.name == weight;
    });
    check<FileError>(to != wanted.end(), "load_decoder",
                     "the folder has {:?}, which the model does not have", weight);
    const Shape shape = matrix ? Shape{matrix->rows(), matrix->columns()} : to->tensor.shape();
    check<FileError>(from.shape() == shape, "load_decoder",
                     "tensor {:?} must have the shape {}, got {}", weight, shape, from.shape());
    targets.push_back({&from, matrix, to->tensor});
    wanted.erase(to);
  }
  return targets;
}

void load_folder(const fs::path& folder, const std::list<SafetensorsFile>& files,
                 const Decoder& model) {
  check_folder(folder);
  if (fs::exists(path_in(folder, decoder_tensors_file)) &&
      fs::exists(path_in(folder, decoder_index_file)))
    fmt::print(stderr, "note: '{}' has {} and {}: the parts of the latter are not read\n",
               folder.string(), decoder_tensors_file, decoder_index_file);
  check<FileError>(!files.empty(), "load_decoder",
                   "'{}' must have {} or {}; other formats are not read", folder.string(),
                   decoder_tensors_file, decoder_index_file);
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
  const NoGrad guard;
  const std::map<std::string, StoredNf4> in_nf4 = nf4_weights(files);
  const std::vector<Nf4Target> targets = take_nf4(in_nf4, model, wanted, ignored);
  load_tensors(files, wanted, ignored);
  for (const Nf4Target& target : targets) target.read();
}

std::vector<WeightInFile> matrices_in_folder(const fs::path& folder,
                                             const std::list<SafetensorsFile>& files,
                                             const Decoder& model) {
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

// A hash of tensors in files, of some of their bytes.
class Fingerprint {
 public:
  void add(const InputFile& file, const std::string& name, std::string_view type,
           const Shape& shape, uint64_t offset, uint64_t bytes) {
    uint64_t hash = mixed(fnv1a_start, fmt::format("{} {} {};", name, type, shape.str()));
    bytes_ += bytes;
    std::byte piece[64];
    constexpr uint64_t samples = 16;
    for (uint64_t i = 0; i < samples && bytes > 0; ++i) {
      const uint64_t size = std::min<uint64_t>(sizeof piece, bytes),
                     at = (bytes - size) * i / (samples - 1);
      file.read(offset + at, std::span(piece, size));
      hash = mixed(hash, {reinterpret_cast<const char*>(piece), size});
    }
    hash_ += hash;  // in any order
  }
  std::string str() const { return fmt::format("{} bytes, hash {:016x}", bytes_, hash_); }

 private:
  static uint64_t mixed(uint64_t hash, std::string_view text) {
    for (const char c : text) hash = fnv1a(hash, static_cast<unsigned char>(c));
    return hash;
  }

  uint64_t bytes_ = 0, hash_ = 0;
};

using MatrixTypes = std::set<std::string, std::less<>>;  // by the names that files have for them

MatrixTypes matrix_types(const DecoderFiles& files) {
  MatrixTypes types;
  if (const GgufFile* const gguf = files.gguf()) {
    for (const auto& [name, stored] : gguf->tensors())
      if (stored.shape.rank() > 1) types.emplace(stored.type->name);
  } else {
    for (const SafetensorsFile& file : files.parts())
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

DecoderConfig config_of(const fs::path& file) {
  return parse_decoder_config(read_config("read_decoder_config", "decoder's", file), file);
}

// The dtype that the folder's config.json names, as transformers has it, if it does.
std::optional<DType> named_dtype(const fs::path& path) {
  const nlohmann::json json =
      read_config("working_dtype", "decoder's", path_in(path, "config.json"));
  constexpr std::pair<const char*, DType> names[] = {
      {"float32", DType::f32}, {"float16", DType::f16}, {"bfloat16", DType::bf16}};
  for (const char* key : {"dtype", "torch_dtype"})
    for (const auto& [word, dtype] : names)
      if (json.contains(key) && json[key] == word) return dtype;
  return {};
}

}  // namespace

DecoderFiles::DecoderFiles(fs::path path)
    : path_(std::move(path)),
      gguf_(is_gguf(path_) ? std::optional<GgufFile>(path_) : std::nullopt),
      config_(gguf_ ? parse_decoder_metadata(*gguf_) : config_of(path_in(path_, "config.json"))),
      parts_(gguf_ ? std::list<SafetensorsFile>() : open_folder(path_)) {}

SpecialTokens DecoderFiles::special_tokens() const {
  if (gguf_) return gguf_tokens(*gguf_);
  std::vector<std::pair<fs::path, nlohmann::json>> files;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path file = path_in(path_, name);
    if (fs::exists(file))
      files.emplace_back(file, read_config("special_tokens", "decoder's", file));
  }
  // The first file that says something of a token counts.
  const auto find = [&](const char* key) {
    for (const auto& [file, json] : files)
      if (const auto ids = token_ids(json, key, file); !ids.empty()) return ids;
    return std::vector<int64_t>{};
  };
  return {first_of(find("bos_token_id")), find("eos_token_id"), first_of(find("pad_token_id"))};
}

bool DecoderFiles::is_quantised() const {
  return gguf_ ? rw::is_quantised(*gguf_) : !types().empty();
}

DecoderTypes DecoderFiles::types() const {
  if (gguf_) return decoder_types(*gguf_, config_);
  DecoderTypes types;
  for (const auto& [weight, stored] : nf4_weights(parts_)) types.emplace(weight, &blocks::nf4);
  return types;
}

DType DecoderFiles::stored_dtype() const {
  const MatrixTypes types = matrix_types(*this);
  if (types.size() != 1) return DType::f32;
  return *types.begin() == "F16" ? DType::f16 : *types.begin() == "BF16" ? DType::bf16 : DType::f32;
}

DType DecoderFiles::working_dtype() const {
  const std::optional<DType> said = gguf_ ? std::nullopt : named_dtype(path_);
  const DType named = said ? *said : dtype_of(matrix_types(*this));
  return named == DType::f16 && config_.is_gemma() ? DType::bf16 : named;
}

bool DecoderFiles::holds_matrices_as(DType dtype) const {
  return std::ranges::all_of(matrix_types(*this), [&](const std::string& type) {
    return type == stored_name(dtype) || (gguf_ && !is_float_type(type));
  });
}

std::string DecoderFiles::fingerprint() const {
  Fingerprint found;
  if (gguf_) {
    const InputFile file(gguf_->path());
    for (const auto& [name, stored] : gguf_->tensors())
      found.add(file, name, stored.type->name, stored.shape, stored.offset, stored.bytes);
  } else {
    for (const SafetensorsFile& file : parts_) {
      const InputFile bytes(file.path());
      for (const auto& [name, stored] : file.tensors())
        found.add(bytes, name, stored.dtype, stored.shape, stored.offset, stored.bytes);
    }
  }
  return found.str();
}

void DecoderFiles::load(Decoder& model) const {
  if (!gguf_) return load_folder(path_, parts_, model);
  load_decoder_tensors(*gguf_, model, model.config());
}

DecoderConfig read_decoder_config(const fs::path& path) {
  if (is_gguf(path)) return parse_decoder_metadata(GgufFile(path));
  return config_of(path.extension() == ".json" ? path : path_in(path, "config.json"));
}

std::vector<WeightInFile> matrices_in_file(const DecoderFiles* files, const Decoder& model) {
  if (!model.parameters().front().device().backend().is_dry())
    return files->gguf() ? matrices_in_gguf(*files->gguf(), model, model.config())
                         : matrices_in_folder(files->path(), files->parts(), model);
  std::vector<WeightInFile> found;
  const auto add = [&](const Tensor& matrix) {
    if (stays_in_file(matrix)) found.push_back({matrix, {"", {{0, 0, matrix.bytes()}}}});
  };
  for (const Tensor& parameter : model.parameters()) add(parameter);
  for (const NamedTensor& buffer : model.named_buffers()) add(buffer.tensor);
  return found;
}

void load_decoder(const fs::path& path, Decoder& model) {
  if (!is_gguf(path)) return load_folder(path, open_folder(path), model);
  load_decoder_tensors(GgufFile(path), model, model.config());
}

}  // namespace rw
