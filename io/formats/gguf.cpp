#include "io/formats/gguf.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <unordered_set>

#include "io/formats/transfer.h"

namespace rw {

namespace {

constexpr uint64_t gguf_alignment = 32;  // of tensors: the format's default
constexpr size_t name_limit = 63;        // bytes; ggml adds a zero
const std::string alignment_key = "general.alignment";

// A value of the metadata, short enough for a message.
std::string described_value(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufList>)
          return "a list";
        else if constexpr (std::is_same_v<T, std::string>)
          return fmt::format("{:?}", v.substr(0, 60));
        else
          return fmt::format("{}", v);
      },
      value);
}

void append(std::string& text, const std::string& value) {
  const uint64_t length = value.size();
  text.append(reinterpret_cast<const char*>(&length), sizeof length);
  text += value;
}
template <class T>
requires std::is_arithmetic_v<T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append(std::string& text, const GgufList& list) {
  append(text, static_cast<uint32_t>(list.index()));
  std::visit(
      [&](const auto& items) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(items)>, std::monostate>) {
          append(text, static_cast<uint64_t>(items.size()));
          for (const auto& item : items) append(text, item);
        }
      },
      list);
}

uint64_t aligned(uint64_t size) {
  return (size + gguf_alignment - 1) / gguf_alignment * gguf_alignment;
}

uint64_t bytes_of(const GgufSource& source) {
  return gguf_type_info(source.type).bytes_of(static_cast<uint64_t>(source.tensor.numel()));
}

const Shape& shape_of(const GgufSource& source) {
  return source.shape ? *source.shape : source.tensor.shape();
}

void check_source(const GgufSource& source, const std::string& path) {
  const auto& [name, tensor, type, stored] = source;
  const Shape& shape = shape_of(source);
  check<ValueError>(name.size() <= name_limit, "gguf",
                    "'{}': names must have at most {} bytes, got {:?}", path, name_limit, name);
  const BlockType* const blocks = gguf_type_info(type).blocks;
  check<ValueError>(type == GgufType::f32 || type == GgufType::f16 || type == GgufType::bf16 ||
                        (blocks && blocks->encode),
                    "gguf", "'{}': {:?} must be written as F32, F16, BF16 or in blocks, got {}",
                    path, name, gguf_type_info(type).name);
  check<ValueError>(shape.rank() >= 1 && shape.rank() <= 4 && is_float(tensor.dtype()) &&
                        shape.numel() == tensor.numel(),
                    "gguf", "'{}': {:?} must be floats of rank 1 to 4, got {} as {}", path, name,
                    tensor, shape);
  const int64_t row = shape[shape.rank() - 1];
  const uint32_t block = gguf_type_info(type).block_elements;
  check<ValueError>(row % block == 0, "gguf",
                    "'{}': rows of {:?} must be whole blocks of {} for {}, got {} elements", path,
                    name, block, gguf_type_info(type).name, row);
}

std::string header_text(const std::vector<GgufSource>& tensors, const GgufMetadata& metadata,
                        const std::string& path) {
  std::string text = "GGUF";
  append(text, uint32_t{3});
  append(text, static_cast<uint64_t>(tensors.size()));
  append(text, static_cast<uint64_t>(metadata.size() - metadata.count(alignment_key)));
  for (const auto& [key, value] : metadata) {
    if (key == alignment_key) continue;
    append(text, key);
    append(text, static_cast<uint32_t>(value.index()));
    std::visit([&](const auto& v) { append(text, v); }, value);
  }
  std::unordered_set<std::string_view> names;
  uint64_t offset = 0;
  for (const GgufSource& source : tensors) {
    check_source(source, path);
    check<ValueError>(names.insert(source.name).second, "gguf",
                      "'{}': each tensor needs a name of its own, got {:?} again", path,
                      source.name);
    const Shape& shape = shape_of(source);
    append(text, source.name);
    append(text, static_cast<uint32_t>(shape.rank()));
    for (int axis = shape.rank() - 1; axis >= 0; --axis)
      append(text, static_cast<uint64_t>(shape[axis]));
    append(text, static_cast<uint32_t>(source.type));
    append(text, offset);
    offset += aligned(bytes_of(source));
  }
  check<ValueError>(text.size() <= gguf_header_limit, "gguf",
                    "'{}': the header may have {} bytes, got {}", path, gguf_header_limit,
                    text.size());
  text.resize(aligned(text.size()), '\0');
  return text;
}

void write_tensor(AtomicFile& file, const GgufSource& source, const std::string& path) {
  const std::string what = fmt::format("tensor {:?} of '{}'", source.name, path);
  const auto as_is = [&](DType dtype) {
    download(source.tensor, dtype, what, [&](auto piece) { file.write(piece); });
  };
  if (source.type == GgufType::f32) return as_is(DType::f32);
  if (source.type == GgufType::f16) return as_is(DType::f16);
  if (source.type == GgufType::bf16) return as_is(DType::bf16);
  const BlockType& type = *gguf_type_info(source.type).blocks;
  std::vector<float> values;
  std::vector<std::byte> blocks;
  download(source.tensor, DType::f32, what, [&](std::span<const std::byte> piece) {
    values.resize(piece.size() / sizeof(float));
    std::memcpy(values.data(), piece.data(), piece.size());
    blocks.resize(type.bytes_of(values.size()));
    for (size_t i = 0; i < values.size() / type.elements; ++i)
      check<ValueError>(type.encode(&values[i * type.elements], &blocks[i * type.bytes()]), "gguf",
                        "'{}': values of {:?} must be finite and below 8e6 for {}", path,
                        source.name, type.name);
    file.write(blocks);
  });
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path.string()), file_(path) {
  std::tie(tensors_, metadata_) = read_gguf_header(file_, path_);
}

const GgufValue& GgufFile::value(const std::string& key) const {
  const auto found = metadata().find(key);
  check<FileError>(found != metadata().end(), "gguf", "'{}' has no {:?} in its metadata", path_,
                   key);
  return found->second;
}

int64_t GgufFile::integer(const std::string& key, int64_t low, int64_t high) const {
  const std::optional<int64_t> whole = std::visit(
      [](const auto& v) -> std::optional<int64_t> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
          if (std::in_range<int64_t>(v)) return static_cast<int64_t>(v);
        return {};
      },
      value(key));
  check<FileError>(whole && *whole >= low && *whole <= high, "gguf",
                   "'{}': {:?} must be a whole number in [{}, {}], got {}", path_, key, low, high,
                   described_value(value(key)));
  return *whole;
}

std::vector<int64_t> GgufFile::integers(const std::string& key) const {
  const auto found = metadata().find(key);
  const auto* list = found == metadata().end() ? nullptr : std::get_if<GgufList>(&found->second);
  if (!list) return {};
  return std::visit(
      [](const auto& values) -> std::vector<int64_t> {
        using T = std::decay_t<decltype(values)>;
        if constexpr (std::is_same_v<T, std::vector<int32_t>> ||
                      std::is_same_v<T, std::vector<uint32_t>> ||
                      std::is_same_v<T, std::vector<int64_t>>)
          return {values.begin(), values.end()};
        return {};
      },
      *list);
}

double GgufFile::number(const std::string& key, double low, double high) const {
  const double found = std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, float>)
          return std::stod(fmt::format("{}", v));
        else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
          return static_cast<double>(v);
        else
          return std::numeric_limits<double>::quiet_NaN();
      },
      value(key));
  check<FileError>(found >= low && found <= high, "gguf",
                   "'{}': {:?} must be a number in [{}, {}], got {}", path_, key, low, high,
                   described_value(value(key)));
  return found;
}

bool GgufFile::flag(const std::string& key) const {
  const auto* found = std::get_if<bool>(&value(key));
  check<FileError>(found != nullptr, "gguf", "'{}': {:?} must be true or false, got {}", path_, key,
                   described_value(value(key)));
  return *found;
}

const std::string& GgufFile::text(const std::string& key) const {
  const auto* found = std::get_if<std::string>(&value(key));
  check<FileError>(found != nullptr, "gguf", "'{}': {:?} must be a text, got {}", path_, key,
                   described_value(value(key)));
  return *found;
}

const GgufTensor& GgufFile::tensor(const std::string& name) const {
  const auto found = tensors().find(name);
  check<FileError>(found != tensors().end(), "gguf", "'{}' has no tensor {:?}", path_, name);
  return found->second;
}

void GgufFile::read_blocks(const std::string& name, const Tensor& target) const {
  const auto& [type, shape, offset, bytes] = tensor(name);
  const std::string what = fmt::format("tensor {:?} of '{}'", name, path_);
  check<FileError>(type->blocks != nullptr, "gguf",
                   "{} must be of a quantised type that is read, got {}", what, type->name);
  upload("U8", {file_, offset, bytes}, target, what);
}

void GgufFile::read(const std::string& name, const Tensor& target) const {
  const auto& [type, shape, offset, bytes] = tensor(name);
  const std::string what = fmt::format("tensor {:?} of '{}'", name, path_);
  const bool fits =
      target.rank() == shape.rank() ? target.shape() == shape : target.numel() == shape.numel();
  check<FileError>(fits, "gguf", "{} must have the shape {}, got {}", what, target.shape(), shape);
  const FilePart part{file_, offset, bytes};
  if (type->block_elements == 1) return upload(type->name, part, target, what);
  check<FileError>(type->blocks != nullptr, "gguf",
                   "{} must be of a type that is read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
                   "Q5_1, Q4_K, Q5_K, Q6_K), got {}",
                   what, type->name);
  std::vector<std::byte> blocks;
  upload_floats(target, what, [&](int64_t first, std::span<float> values) {
    blocks.resize(type->bytes_of(values.size()));
    part.read(type->bytes_of(static_cast<uint64_t>(first)), blocks);
    for (size_t i = 0; i < values.size() / type->block_elements; ++i)
      type->blocks->decode(&blocks[i * type->block_bytes], &values[i * type->block_elements]);
  });
}

void write_gguf(const std::filesystem::path& path, const std::vector<GgufSource>& tensors,
                const GgufMetadata& metadata) {
  const std::string header = header_text(tensors, metadata, path.string());
  AtomicFile file(path);
  file.write(header);
  for (const GgufSource& source : tensors) {
    write_tensor(file, source, path.string());
    const uint64_t bytes = bytes_of(source);
    file.write(std::string(aligned(bytes) - bytes, '\0'));
  }
  file.commit();
}

}  // namespace rw
