// Reads the header of GGUF files, in time and memory that grow with its length only.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/checked.h"
#include "io/formats/gguf.h"

namespace rw {

namespace {

constexpr uint32_t magic = 0x46554747;  // "GGUF"
constexpr size_t list_number = 9;       // of the type list, GgufList
constexpr uint64_t read_at_once = 1 << 20;

// The bytes of the header one after the other.
class HeaderReader {
 public:
  HeaderReader(const InputFile& file, const std::string& path)
      : file_(file), path_(path), end_(std::min(file.size(), gguf_header_limit)) {}

  uint64_t position() const { return start_ + at_; }

  template <class T>
  T number() {
    T value;
    take(&value, sizeof value, "a number");
    return value;
  }

  bool boolean() {
    const auto value = number<uint8_t>();
    check<FileError>(value <= 1, "gguf", "'{}': booleans must be 0 or 1, got {}", path_, value);
    return value == 1;
  }

  std::string text() {
    const auto length = number<uint64_t>();
    expect(length, 1, "a text");
    std::string value(length, '\0');
    take(value.data(), length, "a text");
    return value;
  }

  // How many of something follow, each of at least `bytes`.
  uint64_t count(const char* what, uint64_t bytes) {
    const auto n = number<uint64_t>();
    expect(n, bytes, what);
    return n;
  }

 private:
  // FileError unless n things of `bytes` can follow.
  void expect(uint64_t n, uint64_t bytes, const char* what) {
    check<FileError>(n <= (end_ - position()) / bytes, "gguf",
                     "'{}': the header, of at most {} bytes, must contain {}, got a size of {} "
                     "with {} bytes left; is the file cut short?",
                     path_, gguf_header_limit, what, n, end_ - position());
  }

  void take(void* target, uint64_t bytes, const char* what) {
    expect(bytes, 1, what);
    auto* to = static_cast<std::byte*>(target);
    while (bytes > 0) {
      if (at_ == buffer_.size()) refill();
      const uint64_t part = std::min(bytes, buffer_.size() - at_);
      std::memcpy(to, buffer_.data() + at_, part);
      to += part, at_ += part, bytes -= part;
    }
  }

  void refill() {
    start_ += buffer_.size();
    at_ = 0;
    buffer_.resize(std::min(read_at_once, end_ - start_));
    file_.read(start_, buffer_);
  }

  const InputFile& file_;
  const std::string& path_;
  const uint64_t end_;  // of what a header may have
  std::vector<std::byte> buffer_;
  uint64_t start_ = 0, at_ = 0;  // the buffer's place in the file, and the next byte in it
};

template <class T>
T read_one(HeaderReader& reader) {
  if constexpr (std::is_same_v<T, bool>)
    return reader.boolean();
  else if constexpr (std::is_same_v<T, std::string>)
    return reader.text();
  else
    return reader.number<T>();
}

template <size_t number = 0>
GgufList read_list(HeaderReader& reader, uint32_t type, const std::string& path) {
  if constexpr (number == std::variant_size_v<GgufList>) {
    fail<FileError>("gguf", "'{}': lists must have a type of 0 to 12 that is not 9, got {}", path,
                    type);
  } else if constexpr (number != list_number) {
    if (type == number) {
      using List = std::variant_alternative_t<number, GgufList>;
      using T = typename List::value_type;
      const uint64_t least = std::is_same_v<T, std::string> ? sizeof(uint64_t) : sizeof(T);
      List list(reader.count("a list", least));
      for (auto&& item : list) item = read_one<T>(reader);
      return list;
    }
    return read_list<number + 1>(reader, type, path);
  } else {
    return read_list<number + 1>(reader, type, path);
  }
}

template <size_t number = 0>
GgufValue read_value(HeaderReader& reader, uint32_t type, const std::string& path) {
  if constexpr (number == std::variant_size_v<GgufValue>) {
    fail<FileError>("gguf", "'{}': values must have a type of 0 to 12, got {}", path, type);
  } else {
    if (type != number) return read_value<number + 1>(reader, type, path);
    if constexpr (number == list_number)
      return read_list(reader, reader.number<uint32_t>(), path);
    else
      return read_one<std::variant_alternative_t<number, GgufValue>>(reader);
  }
}

// A tensor whose offset does not yet count from the beginning of the file.
GgufTensor read_tensor(HeaderReader& reader, const std::string& name, const std::string& path) {
  const auto rank = reader.number<uint32_t>();
  check<FileError>(rank <= 4, "gguf", "'{}': tensor {:?} must have at most 4 dimensions, got {}",
                   path, name, rank);
  Shape shape;
  shape.resize(static_cast<int>(rank));
  std::optional<uint64_t> most = 8;  // bytes, sizes of 0 apart; no element has more
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const auto size = reader.number<uint64_t>();
    most = checked_mul(most, std::max<uint64_t>(size, 1));
    check<FileError>(most && *most <= INT64_MAX, "gguf",
                     "'{}': the shape of tensor {:?} is too large, got a size of {}", path, name,
                     size);
    shape[axis] = static_cast<int64_t>(size);
  }
  const auto number = reader.number<uint32_t>();
  const GgufTypeInfo* type = find_gguf_type(number);
  check<FileError>(type != nullptr, "gguf", "'{}': tensor {:?} has the unknown type {}", path, name,
                   number);
  const int64_t row = rank > 0 ? shape[shape.rank() - 1] : 1;
  check<FileError>(row % type->block_elements == 0, "gguf",
                   "'{}': rows of tensor {:?} must be whole blocks of {} {}, got {} elements", path,
                   name, type->block_elements, type->name, row);
  return {type, shape, reader.number<uint64_t>(),
          type->bytes_of(static_cast<uint64_t>(shape.numel()))};
}

uint64_t alignment_of(const GgufMetadata& metadata, const std::string& path) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return 32;
  const auto* value = std::get_if<uint32_t>(&found->second);
  check<FileError>(value && std::has_single_bit(*value), "gguf",
                   "'{}': general.alignment must be a power of two of 32 bits{}", path,
                   value ? fmt::format(", got {}", *value) : "");
  return *value;
}

// Makes offsets count from the beginning of the file, and refuses those that leave the file, that
// are not aligned or that two tensors share.
void place_tensors(GgufTensors& tensors, uint64_t alignment, uint64_t header, uint64_t size,
                   const std::string& path) {
  const uint64_t data = (header + alignment - 1) / alignment * alignment;
  struct Range {
    uint64_t begin, end;
    const std::string* name;
    auto operator<=>(const Range&) const = default;
  };
  std::vector<Range> ranges;
  for (auto& [name, tensor] : tensors) {
    check<FileError>(tensor.offset % alignment == 0, "gguf",
                     "'{}': tensor {:?} must begin at a multiple of {}, got {}", path, name,
                     alignment, tensor.offset);
    const auto end = checked_add(checked_add(tensor.offset, data), tensor.bytes);
    check<FileError>(end && *end <= size, "gguf",
                     "'{}': tensor {:?} must have {} bytes from {} on within the data, got {}; is "
                     "the file cut short?",
                     path, name, tensor.bytes, tensor.offset, size - std::min(size, data));
    tensor.offset += data;
    if (tensor.bytes > 0) ranges.push_back({tensor.offset, *end, &name});
  }
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i)
    check<FileError>(ranges[i].begin >= ranges[i - 1].end, "gguf",
                     "'{}': tensors {:?} and {:?} overlap", path, *ranges[i - 1].name,
                     *ranges[i].name);
}

}  // namespace

std::pair<GgufTensors, GgufMetadata> read_gguf_header(const InputFile& file,
                                                      const std::string& path) {
  HeaderReader reader(file, path);
  check<FileError>(reader.number<uint32_t>() == magic, "gguf", "'{}' is not a GGUF file", path);
  const auto version = reader.number<uint32_t>();
  check<FileError>(version == 2 || version == 3, "gguf",
                   "'{}' must have version 2 or 3, little-endian, got {:#x}", path, version);
  // The least that a tensor takes is a name, a rank, a type and an offset; metadata take a key, a
  // type and a byte.
  const uint64_t count = reader.count("tensors", 24);
  const uint64_t entries = reader.count("metadata", 13);
  GgufTensors tensors;
  GgufMetadata metadata;
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string key = reader.text();
    const auto type = reader.number<uint32_t>();
    const bool first = metadata.emplace(key, read_value(reader, type, path)).second;
    check<FileError>(first, "gguf", "'{}': the metadata name {:?} twice", path, key);
  }
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = reader.text();
    const bool first = tensors.emplace(name, read_tensor(reader, name, path)).second;
    check<FileError>(first, "gguf", "'{}': the header names tensor {:?} twice", path, name);
  }
  place_tensors(tensors, alignment_of(metadata, path), reader.position(), file.size(), path);
  return {std::move(tensors), std::move(metadata)};
}

}  // namespace rw
