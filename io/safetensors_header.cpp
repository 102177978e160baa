// Reads the header of safetensors files, in time that grows with its length only.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

#include "rewind/core/base/checked.h"
#include "rewind/io/safetensors.h"
#include "rewind/io/transfer.h"

namespace rw {

namespace {

using nlohmann::json;

std::string quote(const std::string& text) {
  return fmt::format("{:?}", text);  // names come from files: control characters are escaped
}

// Hands out the members of the header one after the other, each as a small JSON value: all of them
// as one value would be large and slow. Refuses nesting deeper than the format's,
// {"name": {"shape": [ ]}}, and keys that come twice in an object of such a value.
class MemberReader final : public json::json_sax_t {
 public:
  using Visit = std::function<void(const std::string& name, const json& value)>;

  MemberReader(const std::string& path, Visit visit) : path_(path), visit_(std::move(visit)) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none

  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (depth_ == 1) return name_ = std::move(key), true;
    check<FileError>(!open_.back()->contains(key), "safetensors", "'{}': the header names {} twice",
                     path_, quote(key));
    key_ = std::move(key);
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    fail<FileError>("safetensors", "'{}': the header is not valid JSON (error {})", path_,
                    error.id);
  }

 private:
  // Puts a value where it belongs. Within a member, its place; nullptr for a whole one.
  json* place(json value) {
    if (open_.empty()) {
      member_ = std::move(value);
      return &member_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }

  bool add(json value) {
    place(std::move(value));
    if (open_.empty()) visit_(name_, member_);
    return true;
  }

  bool open(json value) {
    check<FileError>(depth_ < 3, "safetensors", "'{}': the header is nested too deep", path_);
    if (++depth_ > 1) open_.push_back(place(std::move(value)));
    return true;
  }

  bool close() {
    if (--depth_ == 0) return true;
    open_.pop_back();
    if (open_.empty()) visit_(name_, member_);
    return true;
  }

  const std::string& path_;
  const Visit visit_;
  int depth_ = 0;  // of open objects and arrays, the header's own included
  std::string name_, key_;
  json member_;
  std::vector<json*> open_;  // within the member; an array grows only while it is the last of them
};

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
  check<FileError>(size > 0, "safetensors", "{} has the unknown dtype {}", what, quote(dtype));

  const auto dims = integers(entry["shape"], "the shape of " + what);
  check<FileError>(dims.size() <= Shape::max_rank, "safetensors",
                   "{} must have at most {} dimensions, got {}", what, Shape::max_rank,
                   dims.size());
  std::optional<uint64_t> most = size;  // bytes, sizes of 0 apart: what a shape may have
  Shape shape;
  for (const uint64_t dim : dims) {
    if (dim > 0) most = checked_mul(most, dim);
    check<FileError>(most && *most <= INT64_MAX, "safetensors", "the shape of {} is too large",
                     what);
    shape.push_back(static_cast<int64_t>(dim));
  }
  const uint64_t bytes = static_cast<uint64_t>(shape.numel()) * size;

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
                     quote(*part.name));
    check<FileError>(part.begin == covered, "safetensors",
                     "'{}': {} bytes before tensor {} belong to none", path, part.begin - covered,
                     quote(*part.name));
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
                     path, quote(key));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  uint64_t length = 0;
  check<FileError>(file.size() >= sizeof length, "safetensors",
                   "'{}' is too short for a safetensors file, got {} bytes", path, file.size());
  std::memcpy(&length, file.data(), sizeof length);
  check<FileError>(length <= safetensors_header_limit, "safetensors",
                   "'{}': the header may have {} bytes, got {}; is this a safetensors file?", path,
                   safetensors_header_limit, length);
  check<FileError>(length <= file.size() - sizeof length, "safetensors",
                   "'{}' is cut short: the header has {} bytes, the file {}", path, length,
                   file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  check<FileError>(text.starts_with('{'), "safetensors", "'{}': the header must begin with {{",
                   path);
  const auto data = file.subspan(sizeof length + length);

  SafetensorsIndex index;
  bool has_metadata = false;
  const auto read = [&](const std::string& name, const json& entry) {
    bool first = !has_metadata;
    if (name == "__metadata__") {
      has_metadata = true;
      index.metadata = parse_metadata(entry, path);
    } else {
      const std::string what = fmt::format("tensor {} of '{}'", quote(name), path);
      first = index.tensors.emplace(name, parse_tensor(entry, data, what)).second;
    }
    check<FileError>(first, "safetensors", "'{}': the header names {} twice", path, quote(name));
  };
  MemberReader reader(path, read);
  json::sax_parse(text, &reader);
  check_coverage(index, data, path);
  return index;
}

}  // namespace rw
