// The GGUF format, version 3, of llama.cpp: typed metadata, then tensors, perhaps quantised
// (docs/gguf.md of https://github.com/ggml-org/ggml). Tensors are read and written in pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../../core/files/file.h"
#include "../../core/tensor/tensor.h"
#include "gguf_types.h"

namespace rw {

// A list of the metadata. The index of a type is the format's number for it; lists of lists, which
// would have number 9, are refused, as llama.cpp refuses them.
using GgufList =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                 std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>, std::monostate,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
// A value of the metadata, again with the format's numbers.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, GgufList, uint64_t, int64_t, double>;
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// A tensor and its place in a file.
struct GgufTensor {
  const GgufTypeInfo* type;        // of its elements
  Shape shape;                     // row-major: the reverse of the order in the file
  uint64_t offset = 0, bytes = 0;  // which bytes of the file
};

using GgufTensors = std::map<std::string, GgufTensor, std::less<>>;  // by name

// Whether a path names such a file, rather than a folder.
inline bool is_gguf(const std::filesystem::path& path) {
  return path.extension() == ".gguf";
}

inline constexpr uint64_t gguf_header_limit = 100'000'000;  // bytes; vocabularies take up to 20e6

// Reads the header of a file of version 2 or 3 and trusts nothing in it: counts, sizes, types,
// offsets, overlaps, duplicate names. `path` is for messages. Throws FileError.
std::pair<GgufTensors, GgufMetadata> read_gguf_header(const InputFile& file,
                                                      const std::string& path);

// An open file. Throws FileError, also if the file is cut short while it is open.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }           // as it was opened
  const GgufMetadata& metadata() const { return metadata_; }  // by key
  const GgufTensors& tensors() const { return tensors_; }     // by name

  bool has(const std::string& key) const { return metadata().contains(key); }  // in the metadata
  // Values of the metadata. FileError if the key is missing or its value is of another kind.
  int64_t integer(const std::string& key, int64_t low, int64_t high) const;  // in [low, high]
  // The same for floats, too; an f32 becomes the shortest decimal that rounds to it.
  double number(const std::string& key, double low, double high) const;
  // The whole numbers of a list of 32 or 64 bits; none if the key is missing or has another value.
  std::vector<int64_t> integers(const std::string& key) const;
  bool flag(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  template <class T>
  const std::vector<T>& list(const std::string& key) const {
    const auto* any = std::get_if<GgufList>(&value(key));
    const auto* found = any ? std::get_if<std::vector<T>>(any) : nullptr;
    check<FileError>(found != nullptr, "gguf", "'{}': {:?} must be a list of another type", path_,
                     key);
    return *found;
  }

  // Copies a tensor of the file into `target`, of any strides, which has its shape, or another rank
  // and as many elements: floats and quantised types to any float dtype, I32 and I64 to i32. Throws
  // FileError.
  void read(const std::string& name, const Tensor& target) const;
  // Copies the bytes of a quantised tensor into `target`, u8 of as many elements and of any
  // strides. Throws FileError.
  void read_blocks(const std::string& name, const Tensor& target) const;

 private:
  const GgufTensor& tensor(const std::string& name) const;
  const GgufValue& value(const std::string& key) const;

  std::string path_;
  InputFile file_;
  GgufTensors tensors_;
  GgufMetadata metadata_;
};

// A tensor to write, of floats, and how.
struct GgufSource {
  std::string name;                 // at most 63 bytes
  Tensor tensor;                    // of any strides
  GgufType type;                    // in the file
  std::optional<Shape> shape = {};  // under which the elements are stored; else the tensor's own
};

// Writes a file of version 3 with the tensors in their order, whole or not at all. ValueError for
// what the format cannot hold: a name that is too long or comes twice, ranks that are not 1 to 4,
// rows that are no whole blocks, values in blocks that are not finite or too large. FileError.
void write_gguf(const std::filesystem::path& path, const std::vector<GgufSource>& tensors,
                const GgufMetadata& metadata);

}  // namespace rw
