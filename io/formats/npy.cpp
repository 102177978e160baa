#include "io/formats/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "core/base/checked.h"
#include "core/files/file.h"
#include "io/formats/transfer.h"
#include "ops/ops.h"

namespace rw {

namespace {

constexpr std::string_view npy_magic("\x93NUMPY", 6);

struct NpyType {
  const char* numpy;  // without the order of its bytes, '<', '>' or '|'
  const char* stored;
  DType dtype;  // of the tensor that it is loaded into
};
// A tensor is written as the first type that has its elements.
constexpr NpyType npy_types[] = {
    {"f4", "F32", DType::f32}, {"f2", "F16", DType::f16}, {"i4", "I32", DType::i32},
    {"u1", "U8", DType::u8},   {"f8", "F64", DType::f32}, {"i8", "I64", DType::i32},
    {"b1", "BOOL", DType::u8}, {"i1", "I8", DType::i32},  {"i2", "I16", DType::i32},
    {"u2", "U16", DType::i32}, {"u4", "U32", DType::i32}, {"u8", "U64", DType::i32},
};

struct Header {
  const NpyType* type = nullptr;
  bool is_big_endian = false, is_column_major = false;
  Shape shape;
};

std::string_view without_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

// The text behind 'key': in a Python dictionary; empty if the key is missing.
std::string_view value_of(std::string_view text, const std::string& key) {
  const size_t at = text.find("'" + key + "'");
  if (at == text.npos) return {};
  text = without_spaces(text.substr(at + key.size() + 2));
  return text.starts_with(':') ? without_spaces(text.substr(1)) : std::string_view{};
}

// The text between the first character, `open`, and the next `close`.
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

// Sets the type of a text as '<f4'.
void parse_type(std::string_view text, Header& header, const std::string& path) {
  for (const NpyType& type : npy_types)
    if (!text.empty() && text.substr(1) == type.numpy) header.type = &type;
  const bool orders = !text.empty() && std::string_view("<>|").find(text[0]) != text.npos;
  check<FileError>(header.type != nullptr && orders, "npy",
                   "'{}' has the unsupported dtype {:?}; numbers that are floats of 2, 4 or 8 "
                   "bytes, integers or bool can be read",
                   path, text.substr(0, 40));
  header.is_big_endian = text[0] == '>';
}

// The header is the text of a Python dictionary with three keys in any order.
Header parse_header(std::string_view text, const std::string& path) {
  const std::string_view type = value_of(text, "descr");
  check<FileError>(!type.starts_with('[') && !type.starts_with('('), "npy",
                   "'{}' has the structured dtype {:?}; save each field as an array of its own",
                   path, type.substr(0, 60));
  const auto descr = enclosed(type, '\'', '\'');
  const auto dims = enclosed(value_of(text, "shape"), '(', ')');
  const std::string_view order = value_of(text, "fortran_order");
  check<FileError>(descr && dims && (order.starts_with("True") || order.starts_with("False")),
                   "npy", "'{}' has no valid header", path);
  Header header{.is_column_major = order.starts_with("True")};
  parse_type(*descr, header, path);
  const auto shape = parse_dims(*dims);
  check<FileError>(shape.has_value(), "npy", "'{}' has the unsupported shape ({:?})", path,
                   dims->substr(0, 120));
  header.shape = *shape;
  return header;
}

// The number of bytes that the header promises; none if it does not fit in 64 bits.
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
  // NumPy has no bf16, so its values are written as f32.
  const DType dtype = tensor.dtype() == DType::bf16 ? DType::f32 : tensor.dtype();
  const auto* type = std::find_if(std::begin(npy_types), std::end(npy_types),
                                  [&](const NpyType& t) { return t.stored == stored_name(dtype); });
  check<DTypeError>(type != std::end(npy_types), "npy", "'{}' cannot hold {}", path.string(),
                    name(dtype));
  const Shape& shape = tensor.shape();
  std::string dims;  // "2, 3"; "2," for one dimension, as Python writes tuples
  for (int i = 0; i < shape.rank(); ++i)
    dims += (i > 0 ? ", " : "") + std::to_string(shape[i]) + (shape.rank() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   size_of(dtype) > 1 ? '<' : '|', type->numpy, dims);
  const size_t prefix = npy_magic.size() + 4;
  header.resize((prefix + header.size() + 64) / 64 * 64 - prefix, ' ');  // NumPy aligns the data
  header.back() = '\n';
  const auto length = static_cast<uint16_t>(header.size());
  AtomicFile file(path, Folders::must_exist);
  file.write(npy_magic);
  file.write(std::string_view("\1\0", 2));  // version
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  download(tensor, dtype, "'" + path.string() + "'", [&](auto piece) { file.write(piece); });
  file.commit();
}

Tensor load_npy(const std::filesystem::path& path) {
  const InputFile file(path);
  const std::string name = path.string();
  std::array<char, 12> start{};
  if (file.size() >= start.size()) file.read(0, std::as_writable_bytes(std::span(start)));
  check<FileError>(std::string_view(start.data(), npy_magic.size()) == npy_magic, "npy",
                   "'{}' is not an .npy file", name);
  // Versions 2 and 3 have a longer length.
  const bool first_version = start[6] == 1;
  const size_t prefix = first_version ? 10 : 12;
  uint32_t length = 0;
  std::memcpy(&length, start.data() + 8, prefix - 8);
  check<FileError>(length <= file.size() - prefix && length < 65536, "npy",
                   "'{}' is cut short, or its header is too long", name);
  std::string text(length, '\0');
  file.read(prefix, std::as_writable_bytes(std::span(text)));
  const Header header = parse_header(text, name);
  const FilePart data{file, prefix + length, file.size() - prefix - length};
  check<FileError>(promised_bytes(header) == data.size, "npy",
                   "'{}' must have the bytes of {} elements, got {}", name, header.shape.str(),
                   data.size);
  const NoGrad guard;
  Tensor tensor = empty(header.shape, header.type->dtype), target = tensor;
  const int last = header.shape.rank() - 1;
  if (header.is_column_major)  // elements come as those of the transpose do in rows
    for (int i = 0; i < last - i; ++i) target = transpose(target, i, last - i);
  upload(header.type->stored, data, target, "'" + name + "'", header.is_big_endian);
  return tensor;
}

}  // namespace rw
