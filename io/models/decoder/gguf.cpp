#include "io/models/decoder/gguf.h"

#include <algorithm>
#include <map>

#include "io/formats/transfer.h"
#include "io/models/decoder/names.h"
#include "io/models/model.h"
#include "nn/adapters/block_layers.h"
#include "ops/operators.h"
#include "ops/ops.h"

namespace rw {

using namespace detail;

namespace {

// A parameter in a file.
struct Entry {
  std::string name;
  Tensor view;     // of the parameter, with the elements in the file's order
  Shape shape;     // in the file
  bool has_shift;  // the file has a norm's weight + 1
};

std::vector<Entry> entries_of(const Module& model, const DecoderConfig& c) {
  const NoGrad guard;
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : model.named_parameters()) {
    const Tensor view = in_gguf_order(name, tensor, c);
    const bool is_norm = name.ends_with("norm.weight");
    entries.push_back({gguf_name(name, c), view, tensor.shape(), c.is_gemma() && is_norm});
  }
  return entries;
}

// Throws unless the file has these tensors, by name and shape, and no others.
void check_names(const GgufFile& file, const std::map<std::string, Shape>& wanted) {
  for (const auto& [name, shape] : wanted) {
    const auto found = file.tensors().find(name);
    check<FileError>(found != file.tensors().end(), "load_decoder", "'{}' has no tensor {}",
                     file.path(), name);
    check<FileError>(found->second.shape == shape, "load_decoder",
                     "tensor {} of '{}' must have the shape {}, got {}", name, file.path(), shape,
                     found->second.shape);
  }
  for (const auto& [name, stored] : file.tensors())
    check<FileError>(wanted.contains(name) || name == rope_freqs, "load_decoder",
                     "'{}' has tensor {:?}, which the model does not have", file.path(), name);
}

// The bytes of a view of a storage whose elements lie side by side in a file, from `offset` on.
std::vector<FileRun> runs_of(const Tensor& view, uint64_t offset) {
  int64_t inner = 1;  // elements that lie side by side in both
  int axis = view.rank();
  for (; axis > 0 && view.strides()[axis - 1] == inner; --axis) inner *= view.size(axis - 1);
  const uint64_t bytes = static_cast<uint64_t>(inner) * size_of(view.dtype());
  std::vector<FileRun> runs;
  for (int64_t run = 0; run < view.numel() / inner; ++run) {
    int64_t begin = view.impl().offset, rest = run;
    for (int i = axis; i-- > 0; rest /= view.size(i))
      begin += rest % view.size(i) * view.strides()[i];
    runs.push_back({offset + static_cast<uint64_t>(run) * bytes,
                    static_cast<uint64_t>(begin) * size_of(view.dtype()), bytes});
  }
  return runs;
}

void read_entries(const GgufFile& file, const std::vector<Entry>& entries) {
  for (const auto& [name, view, shape, has_shift] : entries) {
    if (stays_in_file(view)) continue;
    file.read(name, view);
    if (has_shift) Tensor(view).copy_(view - 1);
  }
}

}  // namespace

bool is_quantised(const GgufFile& file) {
  return std::ranges::any_of(
      file.tensors(), [](const auto& named) { return named.second.type->block_elements > 1; });
}

DecoderTypes decoder_types(const GgufFile& file, const DecoderConfig& config) {
  DecoderTypes types;
  for (const auto& [weight, shape] : decoder_matrices(config)) {
    const std::string name = gguf_name(weight, config);
    const auto stored = file.tensors().find(name);
    check<FileError>(stored != file.tensors().end(), "load_decoder", "'{}' has no tensor {}",
                     file.path(), name);
    const GgufTypeInfo& type = *stored->second.type;
    check<FileError>(type.block_elements == 1 || type.blocks, "load_decoder",
                     "tensor {:?} of '{}' must be of a quantised type that is read, got {}", name,
                     file.path(), type.name);
    types.emplace(weight, type.blocks);
  }
  return types;
}

void load_decoder_tensors(const GgufFile& file, const Module& model, const DecoderConfig& config) {
  const NoGrad guard;
  std::map<std::string, Shape> wanted;
  for (const auto& [weight, blocks] : all_blocks(model)) {
    const std::string name = gguf_name(weight, config);
    wanted.emplace(name, Shape{blocks->rows(), blocks->columns()});
    const auto stored = file.tensors().find(name);
    check<FileError>(
        stored == file.tensors().end() || stored->second.type->blocks == &blocks->type(),
        "load_decoder", "tensor {:?} of '{}' must be of the type {}, got {}", name, file.path(),
        blocks->type().name, stored->second.type->name);
  }
  for (const Entry& entry : entries_of(model, config)) wanted.emplace(entry.name, entry.shape);
  check_names(file, wanted);
  for (const auto& [weight, blocks] : all_blocks(model))
    if (!stays_in_file(blocks->codes()))
      file.read_blocks(gguf_name(weight, config), in_gguf_order(weight, blocks->codes(), config));
  read_entries(file, entries_of(model, config));
}

std::map<std::string, const BlockMatrix*> all_blocks(const Module& model) {
  std::map<std::string, const BlockMatrix*> found;
  for (const auto& [name, module] : model.named_modules()) {
    const auto* layer = dynamic_cast<const BlockLinear*>(module);
    const auto* table = dynamic_cast<const BlockEmbedding*>(module);
    if (layer || table)
      found.emplace(name + ".weight", layer ? &layer->weight() : &table->weight());
  }
  return found;
}

bool stays_in_file(const Tensor& matrix) {
  const Storage& storage = *matrix.impl().storage;
  return storage.is_swapped_out() && !storage.is_on_host();
}

std::vector<WeightInFile> matrices_in_gguf(const GgufFile& file, const Module& model,
                                           const DecoderConfig& config) {
  const NoGrad guard;
  std::vector<WeightInFile> found;
  const auto add = [&](const std::string& weight, const Tensor& matrix, std::string_view type) {
    const GgufTensor& stored = file.tensors().at(gguf_name(weight, config));
    check<FileError>(
        stored.type->name == type && stored.bytes == matrix.bytes(), "load_decoder",
        "tensor {:?} of '{}' must have {} bytes of {} to stay in the file, got {} of {}",
        gguf_name(weight, config), file.path(), matrix.bytes(), type, stored.bytes,
        stored.type->name);
    found.push_back(
        {matrix, {file.path(), runs_of(in_gguf_order(weight, matrix, config), stored.offset)}});
  };
  for (const auto& [weight, blocks] : all_blocks(model))
    if (stays_in_file(blocks->codes())) add(weight, blocks->codes(), blocks->type().name);
  for (const auto& [weight, parameter] : model.named_parameters())
    if (stays_in_file(parameter)) add(weight, parameter, stored_name(parameter.dtype()));
  return found;
}

void check_has_floats(const Module& model) {
  for (const NamedTensor& buffer : model.named_buffers())
    check(!buffer.name.ends_with("blocks"), "save_decoder",
          "weights in blocks are not written, got '{}': open the model as floats", buffer.name);
}

std::vector<GgufSource> decoder_tensors(const Module& model, const DecoderConfig& config,
                                        GgufType type) {
  const NoGrad guard;
  check_has_floats(model);
  std::vector<GgufSource> sources;
  for (const auto& [name, view, shape, has_shift] : entries_of(model, config)) {
    GgufType its_type = GgufType::f32;
    if (shape.rank() == 2) its_type = matrix_type(name, shape[1], type, config);
    sources.push_back({name, has_shift ? view + 1 : view, its_type, shape});
  }
  if (config.rope_scaling.type == "llama3") {
    const std::vector<float> factors = rope_stretches(config);
    sources.push_back({rope_freqs, tensor(factors, {std::ssize(factors)}), GgufType::f32});
  }
  return sources;
}

}  // namespace rw
