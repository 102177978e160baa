// The safetensors format: a JSON header with names, dtypes, shapes and offsets, then raw bytes.
// Tensors are read and written in pieces, straight to and from the device.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../core/files/file.h"
#include "../../core/tensor/tensor.h"

namespace rw {

// Texts by name, in the header of a file.
using Metadata = std::map<std::string, std::string>;

// A tensor and its place in a file.
struct StoredTensor {
  std::string dtype;               // as the format spells it: "F32", "BF16", ...
  Shape shape;                     // row-major
  uint64_t offset = 0, bytes = 0;  // which bytes of the file
  // Why read() refuses it: a dtype or a number of dimensions that tensors do not have here. Empty:
  // it does not. With too many dimensions, `shape` is the number of elements.
  std::string unread = {};
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;  // by name

inline constexpr uint64_t safetensors_header_limit = 100'000'000;  // bytes, as the reference's

// Reads the header of a file and trusts nothing in it: sizes, offsets, gaps, overlaps, duplicate
// names. `path` is for messages. Throws FileError.
std::pair<StoredTensors, Metadata> read_safetensors_header(const InputFile& file,
                                                           const std::string& path);

// An open file. Throws FileError, also if the file is cut short while it is open.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }          // as it was opened
  const Metadata& metadata() const { return metadata_; }     // empty where there is none
  const StoredTensors& tensors() const { return tensors_; }  // by name

  // Copies a tensor of the file into `target`, which has its shape and any strides. Floats are
  // converted to the target's float dtype, I64 to i32 with a check of the range. Throws FileError.
  void read(const std::string& name, const Tensor& target) const;
  // The same for as many of its elements as `target` has, row by row, from number `first` on.
  void read(const std::string& name, int64_t first, const Tensor& target) const;
  // Compares the metadata and the bytes of all tensors with the checksums in the file. Throws
  // FileError with the name if one differs or is missing.
  void verify() const;

 private:
  const StoredTensor& stored(const std::string& name) const;

  std::string path_;
  InputFile file_;
  StoredTensors tensors_;
  Metadata metadata_;
};

// Whether a file has the checksums that SafetensorsFile::verify() needs: none, or crc32, entries
// "crc32" and "crc32:NAME" in its metadata. Such a file must be a regular one.
enum class Checksums { none, crc32 };

// Writes the tensors, of any strides, as one file, with floats as `float_dtype` if given. Throws
// ValueError for repeated names and for texts that are not UTF-8, and FileError.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata = {},
                       std::optional<DType> float_dtype = std::nullopt,
                       Checksums checksums = Checksums::none);

}  // namespace rw
