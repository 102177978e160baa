#include "rewind/io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "rewind/core/base/checked.h"
#include "rewind/io/file.h"
#include "rewind/io/transfer.h"

namespace rw {

namespace {

constexpr std::string_view magic("\x93NUMPY", 6);

struct Type {
  const char* numpy;
  const char* stored;
  DType dtype;  // of the tensor that it is loaded into
};
constexpr Type types[] = {
    {"<f4", "F32", DType::f32}, {"<f2", "F16", DType::f16}, {"<i4", "I32", DType::i32},
    {"|u1", "U8", DType::u8},   {"<f8", "F64", DType::f32}, {"<i8", "I64", DType::i32},
    {"|b1", "BOOL", DType::u8},
};

struct Header {
  const Type* type = nullptr;
  Shape shape;
};

std::string_view without_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

// What follows 'key': in a Python dictionary; empty where it is missing.
std::string_view value_of(std::string_view text, const std::string& key) {
  const size_t at = text.find("'" + key + "'");
  if (at == text.npos) return {};
  text = without_spaces(text.substr(at + key.size() + 2));
  return text.starts_with(':') ? without_spaces(text.substr(1)) : std::string_view{};
}

// What is between the first character, `open`, and the next `close`.
std::optional<std::string_view> enclosed(std::string_view text, char open, char close) {
  const size_t end = text.starts_with(open) ? text.find(close, 1) : text.npos;
  if (end == text.npos) return std::nullopt;
  return text.substr(1, end - 1);
}

// "2, 3", "2," or "".
std::optional<Shape> parse_dims(std::string_view text) {
  Shape shape;
  for (text = without_spaces(text); !text.empty(); text = without_spaces(text)) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc() || dim < 0 || shape.rank() == Shape::max_rank) return std::nullopt;
    shape.push_back(dim);
    text = without_spaces(text.substr(static_cast<size_t>(end - text.data())));
    if (!text.empty() && !text.starts_with(',')) return std::nullopt;
    if (!text.empty()) text.remove_prefix(1);
  }
  return shape;
}

// The header is the text of a Python dictionary with three keys in any order.
Header parse_header(std::string_view text, const std::string& path) {
  const auto descr = enclosed(value_of(text, "descr"), '\'', '\'');
  const auto dims = enclosed(value_of(text, "shape"), '(', ')');
  const std::string_view order = value_of(text, "fortran_order");
  check<FileError>(descr && dims && (order.starts_with("True") || order.starts_with("False")),
                   "npy", "'{}' has no valid header", path);
  check<FileError>(order.starts_with("False"), "npy", "'{}' must be row-major, got fortran_order",
                   path);
  Header header;
  for (const Type& type : types)
    if (*descr == type.numpy) header.type = &type;
  check<FileError>(header.type != nullptr, "npy", "'{}' has the unsupported dtype {:?}", path,
                   descr->substr(0, 40));
  const auto shape = parse_dims(*dims);
  check<FileError>(shape.has_value(), "npy", "'{}' has the unsupported shape ({:?})", path,
                   dims->substr(0, 120));
  header.shape = *shape;
  return header;
}

// Bytes that the header promises; none if they are more than 64 bits can count.
std::optional<uint64_t> promised_bytes(const Header& header) {
  try {
    check_sizes("npy", header.shape, stored_size(header.type->stored));
  } catch (const ShapeError&) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(header.shape.numel()) * stored_size(header.type->stored);
}

}  // namespace

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const Type* type = types;
  while (stored_name(tensor.dtype()) != type->stored) ++type;
  const Shape& shape = tensor.shape();
  std::string dims;  // "2, 3"; "2," for one dimension, as Python writes tuples
  for (int i = 0; i < shape.rank(); ++i)
    dims += (i > 0 ? ", " : "") + std::to_string(shape[i]) + (shape.rank() == 1 ? "," : "");
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type->numpy, dims);
  const size_t prefix = magic.size() + 4;
  header.resize((prefix + header.size() + 64) / 64 * 64 - prefix, ' ');  // NumPy aligns the data
  header.back() = '\n';
  const auto length = static_cast<uint16_t>(header.size());
  AtomicFile file(path, Folders::must_exist);
  file.write(magic);
  file.write(std::string_view("\1\0", 2));  // version
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  download(tensor, tensor.dtype(), [&](auto piece) { file.write(piece); });
  file.commit();
}

Tensor load_npy(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string name = path.string();
  check<FileError>(bytes.size() >= 12 && std::memcmp(bytes.data(), magic.data(), 6) == 0, "npy",
                   "'{}' is not an .npy file", name);
  // Versions 2 and 3 have a longer length.
  const bool first_version = bytes[6] == std::byte{1};
  const size_t prefix = first_version ? 10 : 12;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + 8, prefix - 8);
  check<FileError>(length <= bytes.size() - prefix && length < 65536, "npy",
                   "'{}' is cut short, or its header is too long", name);
  const Header header =
      parse_header({reinterpret_cast<const char*>(bytes.data()) + prefix, length}, name);
  const auto data = bytes.subspan(prefix + length);
  check<FileError>(promised_bytes(header) == data.size(), "npy",
                   "'{}' must have the bytes of {} elements, got {}", name, header.shape.str(),
                   data.size());
  Tensor tensor = empty(header.shape, header.type->dtype);
  upload(header.type->stored, data, tensor, "'" + name + "'");
  return tensor;
}

}  // namespace rw
