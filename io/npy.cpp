#include "io/npy.h"

#include <cstring>
#include <regex>

#include "io/file.h"
#include "io/transfer.h"

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

// The header is the text of a Python dictionary with three keys in any order.
Header parse_header(const std::string& text, const std::string& path) {
  std::smatch descr, order, shape;
  check<FileError>(
      std::regex_search(text, descr, std::regex("'descr': *'([^']{1,8})'")) &&
          std::regex_search(text, order, std::regex("'fortran_order': *(True|False)")) &&
          std::regex_search(text, shape, std::regex("'shape': *\\(([0-9, ]{0,120})\\)")),
      "npy", "'{}' has no valid header", path);
  check<FileError>(order[1] == "False", "npy", "'{}' must be row-major, got fortran_order", path);
  Header header;
  for (const Type& type : types)
    if (descr[1] == type.numpy) header.type = &type;
  check<FileError>(header.type != nullptr, "npy", "'{}' has the unsupported dtype {}", path,
                   descr[1].str());
  const std::string dims = shape[1];
  const std::regex number("[0-9]+");
  for (std::sregex_iterator i(dims.begin(), dims.end(), number), end; i != end; ++i) {
    check<FileError>(i->length() < 16 && header.shape.rank() < Shape::max_rank, "npy",
                     "'{}' has the unsupported shape ({})", path, dims);
    header.shape.push_back(std::stoll(i->str()));
  }
  return header;
}

// Bytes that the header promises; none if they are more than 64 bits can count.
std::optional<uint64_t> promised_bytes(const Header& header) {
  uint64_t bytes = stored_size(header.type->stored);
  for (const int64_t dim : header.shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return std::nullopt;
  return bytes;
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
