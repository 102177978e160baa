#include "io/formats/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <unordered_set>
#include <zlib.h>

#include "io/formats/transfer.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr size_t safetensors_alignment = 8;     // of the first tensor in the file
constexpr uint64_t verified_at_once = 1 << 20;  // bytes

std::string quote(const std::string& text) {
  return fmt::format("{:?}", text);  // names come from files: control characters are escaped
}

// The contents of a file that write_safetensors writes, in the order of its bytes.
struct Planned {
  const NamedTensor* source;
  DType dtype;
  uint64_t bytes() const { return static_cast<uint64_t>(source->tensor.numel()) * size_of(dtype); }
};

// Wide elements come first, which keeps every tensor aligned to its elements.
std::vector<Planned> plan_file(const std::vector<NamedTensor>& tensors,
                               std::optional<DType> float_dtype) {
  std::vector<Planned> plan;
  for (const NamedTensor& t : tensors) {
    const DType own = t.tensor.dtype();
    plan.push_back({&t, is_float(own) ? float_dtype.value_or(own) : own});
  }
  std::stable_sort(plan.begin(), plan.end(), [](const Planned& a, const Planned& b) {
    return size_of(a.dtype) > size_of(b.dtype);
  });
  return plan;
}

std::string header_text(const std::vector<Planned>& plan, const Metadata& metadata,
                        const std::string& path) {
  std::unordered_set<std::string_view> names = {"__metadata__"};
  std::string text;
  if (!metadata.empty()) text += ",\"__metadata__\":" + json(metadata).dump();
  uint64_t offset = 0;
  for (const Planned& p : plan) {
    check<ValueError>(names.insert(p.source->name).second, "safetensors",
                      "'{}': each tensor needs a name of its own, got {} again", path,
                      quote(p.source->name));
    const Shape& shape = p.source->tensor.shape();
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        json(p.source->name).dump(), stored_name(p.dtype),
                        json(std::vector(shape.begin(), shape.end())).dump(), offset,
                        offset + p.bytes());
    offset += p.bytes();
  }
  if (text.empty()) text = ",";
  text[0] = '{';
  text += '}';
  text.resize(
      (text.size() + safetensors_alignment - 1) / safetensors_alignment * safetensors_alignment,
      ' ');
  return text;
}

// Refuses what no reader would accept.
std::string checked_header(const std::vector<Planned>& plan, const Metadata& metadata,
                           const std::string& path) {
  std::string text;
  try {
    text = header_text(plan, metadata, path);
  } catch (const json::exception&) {
    fail<ValueError>("safetensors", "'{}': names and metadata must be UTF-8", path);
  }
  check<ValueError>(text.size() <= safetensors_header_limit, "safetensors",
                    "'{}': the header may have {} bytes, got {}; store fewer tensors in one file",
                    path, safetensors_header_limit, text.size());
  return text;
}

// Checksums lie in the metadata: one per tensor, and one of all other metadata.
const std::string metadata_checksum = "crc32";

std::string tensor_checksum(const std::string& name) {
  return "crc32:" + name;
}

class Crc32 {
 public:
  void add(std::span<const std::byte> bytes) {
    value_ = crc32_z(value_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  // The final zero counts, so that a character that moves from one text to the next changes the
  // sum.
  void add(const std::string& text) {
    add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  }
  // All values have the same number of letters, since they are known only after the header has its
  // place.
  std::string text() const { return fmt::format("{:08x}", value_); }

 private:
  uLong value_ = crc32_z(0, nullptr, 0);
};

std::string checksum_of(const Metadata& metadata) {
  Crc32 crc;
  for (const auto& [key, value] : metadata) {
    if (key == metadata_checksum) continue;
    crc.add(key);
    crc.add(value);
  }
  return crc.text();
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(path) {
  std::tie(tensors_, metadata_) = read_safetensors_header(file_, path_);
}

const StoredTensor& SafetensorsFile::stored(const std::string& name) const {
  const auto found = tensors().find(name);
  check<FileError>(found != tensors().end(), "safetensors", "'{}' has no tensor {}", path_,
                   quote(name));
  return found->second;
}

void SafetensorsFile::read(const std::string& name, const Tensor& target) const {
  const Shape& shape = stored(name).shape;
  check<FileError>(shape == target.shape() || !stored(name).unread.empty(), "safetensors",
                   "tensor {} of '{}' must have the shape {}, got {}", quote(name), path_,
                   target.shape().str(), shape.str());
  read(name, 0, target);
}

void SafetensorsFile::read(const std::string& name, int64_t first, const Tensor& target) const {
  const auto& [dtype, shape, offset, bytes, unread] = stored(name);
  const std::string what = fmt::format("tensor {} of '{}'", quote(name), path_);
  check<FileError>(unread.empty(), "safetensors", "{} {}", what, unread);
  check<FileError>(first >= 0 && first <= shape.numel() - target.numel(), "safetensors",
                   "{} must have {} elements from number {} on, got {}", what, target.numel(),
                   first, shape.numel());
  const uint64_t size = stored_size(dtype);
  upload(dtype,
         {file_, offset + static_cast<uint64_t>(first) * size,
          static_cast<uint64_t>(target.numel()) * size},
         target, what);
}

void SafetensorsFile::verify() const {
  const auto expect = [&](const std::string& key, const std::string& what, const std::string& got) {
    const auto stored = metadata().find(key);
    check<FileError>(stored != metadata().end(), "safetensors", "'{}' has no checksum of {}", path_,
                     what);
    check<FileError>(stored->second == got, "safetensors",
                     "'{}' is damaged: the checksum of {} must be {}, got {}", path_, what,
                     quote(stored->second), got);
  };
  expect(metadata_checksum, "the metadata", checksum_of(metadata()));
  std::vector<std::byte> piece;
  for (const auto& [name, tensor] : tensors()) {
    check<FileError>(tensor.unread.empty(), "safetensors", "'{}' is damaged: tensor {} {}", path_,
                     quote(name), tensor.unread);
    Crc32 crc;
    for (uint64_t done = 0; done < tensor.bytes; done += piece.size()) {
      piece.resize(std::min(verified_at_once, tensor.bytes - done));
      file_.read(tensor.offset + done, piece);
      crc.add(piece);
    }
    expect(tensor_checksum(name), "tensor " + quote(name), crc.text());
  }
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& given, std::optional<DType> float_dtype,
                       Checksums checksums) {
  check<DTypeError>(!float_dtype || is_float(*float_dtype), "safetensors",
                    "floats can be stored as f32, f16 or bf16, got {}",
                    name(float_dtype.value_or(DType::f32)));
  const std::vector<Planned> plan = plan_file(tensors, float_dtype);
  Metadata metadata = given;
  if (checksums == Checksums::crc32) {
    metadata[metadata_checksum] = Crc32().text();
    for (const NamedTensor& t : tensors) metadata[tensor_checksum(t.name)] = Crc32().text();
  }
  const std::string header = checked_header(plan, metadata, path.string());
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const Planned& p : plan) {
    Crc32 crc;
    const std::string what = fmt::format("tensor {} of '{}'", quote(p.source->name), path.string());
    download(p.source->tensor, p.dtype, what, [&](auto piece) {
      if (checksums == Checksums::crc32) crc.add(piece);
      file.write(piece);
    });
    if (checksums == Checksums::crc32) metadata[tensor_checksum(p.source->name)] = crc.text();
  }
  if (checksums == Checksums::crc32) {
    metadata[metadata_checksum] = checksum_of(metadata);
    const std::string final_header = checked_header(plan, metadata, path.string());
    file.rewrite(sizeof length, std::as_bytes(std::span(final_header)));
  }
  file.commit();
}

}  // namespace rw
