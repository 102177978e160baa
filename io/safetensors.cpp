#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/transfer.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr uint64_t max_header = 100'000'000;  // as the reference implementation
constexpr size_t alignment = 8;               // of the first tensor in the file

std::string quoted(const std::string& text) {
  return fmt::format("{:?}", text);  // names come from files: control characters are escaped
}

// Parses the JSON and refuses what nlohmann-json would let pass: duplicate keys, and nesting deeper
// than the format's, {"name": {"shape": [ ]}}.
json parse_json(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::object_start || event == Event::array_start)
      check<FileError>(depth < 3, "safetensors", "'{}': the header is nested too deep", path);
    if (event == Event::key)
      check<FileError>(keys.back().insert(value.get<std::string>()).second, "safetensors",
                       "'{}': the header names {} twice", path, quoted(value.get<std::string>()));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    fail<FileError>("safetensors", "'{}': the header is not valid JSON (error {})", path, error.id);
  }
}

// Unsigned integers of a JSON array.
std::vector<uint64_t> integers(const json& list, const std::string& what) {
  std::vector<uint64_t> values;
  check<FileError>(list.is_array(), "safetensors", "{} must be a list of integers", what);
  for (const json& item : list) {
    check<FileError>(item.is_number_unsigned(), "safetensors",
                     "{} must be a list of integers that are not negative", what);
    values.push_back(item.get<uint64_t>());
  }
  return values;
}

// Checks one entry of the header against the bytes of the file's data.
StoredTensor parse_tensor(const json& entry, std::span<const std::byte> data,
                          const std::string& what) {
  check<FileError>(
      entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
          entry.contains("shape") && entry.contains("data_offsets") && entry["dtype"].is_string(),
      "safetensors", "{} must have dtype, shape and data_offsets, and nothing else", what);
  const auto& dtype = entry["dtype"].get_ref<const std::string&>();
  const size_t size = stored_size(dtype);
  check<FileError>(size > 0, "safetensors", "{} has the unknown dtype {}", what, quoted(dtype));

  const auto dims = integers(entry["shape"], "the shape of " + what);
  check<FileError>(dims.size() <= Shape::max_rank, "safetensors",
                   "{} must have at most {} dimensions, got {}", what, Shape::max_rank,
                   dims.size());
  uint64_t bytes = size;
  Shape shape;
  for (const uint64_t dim : dims) {
    check<FileError>(dim <= INT64_MAX && !__builtin_mul_overflow(bytes, dim, &bytes), "safetensors",
                     "the shape of {} is too large", what);
    shape.push_back(static_cast<int64_t>(dim));
  }

  const auto offsets = integers(entry["data_offsets"], "data_offsets of " + what);
  check<FileError>(
      offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data.size(), "safetensors",
      "data_offsets of {} must be a range within the file's {} bytes of data", what, data.size());
  check<FileError>(offsets[1] - offsets[0] == bytes, "safetensors",
                   "{} must have {} bytes for {} {}, got {}", what, bytes, dtype, shape.str(),
                   offsets[1] - offsets[0]);
  return {dtype, shape, data.subspan(offsets[0], bytes)};
}

// The format wants every byte of the data to belong to exactly one tensor.
void check_coverage(const SafetensorsIndex& index, std::span<const std::byte> data,
                    const std::string& path) {
  struct Part {
    size_t begin, end;
    const std::string* name;
    auto operator<=>(const Part&) const = default;
  };
  std::vector<Part> parts;
  for (const auto& [name, tensor] : index.tensors) {
    const auto begin = static_cast<size_t>(tensor.bytes.data() - data.data());
    parts.push_back({begin, begin + tensor.bytes.size(), &name});
  }
  std::sort(parts.begin(), parts.end());
  size_t covered = 0;
  for (const Part& part : parts) {
    check<FileError>(part.begin >= covered, "safetensors", "'{}': tensor {} overlaps another", path,
                     quoted(*part.name));
    check<FileError>(part.begin == covered, "safetensors",
                     "'{}': {} bytes before tensor {} belong to none", path, part.begin - covered,
                     quoted(*part.name));
    covered = part.end;
  }
  check<FileError>(covered == data.size(), "safetensors",
                   "'{}': {} bytes at the end belong to no tensor", path, data.size() - covered);
}

Metadata parse_metadata(const json& entries, const std::string& path) {
  Metadata metadata;
  check<FileError>(entries.is_object(), "safetensors", "'{}': __metadata__ must be an object",
                   path);
  for (const auto& [key, value] : entries.items()) {
    check<FileError>(value.is_string(), "safetensors", "'{}': the metadata {} must be a string",
                     path, quoted(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// What write_safetensors puts into a file, in the order of its bytes.
struct Planned {
  const NamedTensor* source;
  DType dtype;
  uint64_t bytes() const { return static_cast<uint64_t>(source->tensor.numel()) * size_of(dtype); }
};

// Wide elements first keeps every tensor aligned to its elements.
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
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Planned& p : plan) {
    check<ValueError>(!header.contains(p.source->name) && p.source->name != "__metadata__",
                      "safetensors", "'{}': each tensor needs a name of its own, got {} again",
                      path, quoted(p.source->name));
    const Shape& shape = p.source->tensor.shape();
    header[p.source->name] = {{"dtype", stored_name(p.dtype)},
                              {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                              {"data_offsets", {offset, offset + p.bytes()}}};
    offset += p.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  return text;
}

}  // namespace

SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  uint64_t length = 0;
  check<FileError>(file.size() >= sizeof length, "safetensors",
                   "'{}' is too short for a safetensors file, got {} bytes", path, file.size());
  std::memcpy(&length, file.data(), sizeof length);
  check<FileError>(length <= max_header, "safetensors",
                   "'{}': the header may have {} bytes, got {}; is this a safetensors file?", path,
                   max_header, length);
  check<FileError>(length <= file.size() - sizeof length, "safetensors",
                   "'{}' is cut short: the header has {} bytes, the file {}", path, length,
                   file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  check<FileError>(text.starts_with('{'), "safetensors", "'{}': the header must begin with {{",
                   path);
  const auto data = file.subspan(sizeof length + length);

  SafetensorsIndex index;
  const json header = parse_json(text, path);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      index.metadata = parse_metadata(entry, path);
    } else {
      const std::string what = fmt::format("tensor {} of '{}'", quoted(name), path);
      index.tensors.emplace(name, parse_tensor(entry, data, what));
    }
  }
  check_coverage(index, data, path);
  return index;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(path), index_(parse_safetensors(file_.bytes(), path_)) {}

void SafetensorsFile::read(const std::string& name, const Tensor& target) const {
  const auto found = tensors().find(name);
  check<FileError>(found != tensors().end(), "safetensors", "'{}' has no tensor {}", path_,
                   quoted(name));
  const StoredTensor& stored = found->second;
  const std::string what = fmt::format("tensor {} of '{}'", quoted(name), path_);
  check<FileError>(stored.shape == target.shape(), "safetensors",
                   "{} must have the shape {}, got {}", what, target.shape().str(),
                   stored.shape.str());
  upload(stored.dtype, stored.bytes, target, what);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata, std::optional<DType> float_dtype) {
  check<DTypeError>(!float_dtype || is_float(*float_dtype), "safetensors",
                    "floats can be stored as f32 or f16, got {}",
                    name(float_dtype.value_or(DType::f32)));
  const std::vector<Planned> plan = plan_file(tensors, float_dtype);
  const std::string header = header_text(plan, metadata, path.string());
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const Planned& p : plan)
    download(p.source->tensor, p.dtype, [&](auto piece) { file.write(piece); });
  file.commit();
}

}  // namespace rw
