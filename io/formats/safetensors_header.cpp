// Reads the header of safetensors files, in time that grows with its length only.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>

#include "core/base/checked.h"
#include "io/formats/safetensors.h"
#include "io/formats/transfer.h"

namespace rw {

namespace {

using nlohmann::json;

// Names come from files: in messages control characters are escaped, {:?}.

// Names a part of a tensor for messages. The text is made only for an error, as there may be a
// million tensors.
struct Part {
  const char* part;  // "the shape of ", or nothing
  const std::string& name;
  const std::string& path;

  std::string str() const { return fmt::format("{}tensor {:?} of '{}'", part, name, path); }
};

// Hands out the members of the header one after the other, each as a small JSON value: a single
// value for all of them would be large and slow. Refuses nesting deeper than the format's, {"name":
// {"shape": [ ]}}, and keys that come twice in an object of such a value.
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
    check<FileError>(!open_.back()->contains(key), "safetensors",
                     "'{}': the header names {:?} twice", path_, key);
    key_ = std::move(key);
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    fail<FileError>("safetensors", "'{}': the header is not valid JSON (error {})", path_,
                    error.id);
  }

 private:
  // Puts a value where it belongs, and returns its place there.
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
std::vector<uint64_t> integers(const json& list, const Part& what) {
  std::vector<uint64_t> values;
  check<FileError>(list.is_array(), "safetensors", "{} must be a list of integers", what);
  for (const json& item : list) {
    check<FileError>(item.is_number_unsigned(), "safetensors",
                     "{} must be a list of integers that are not negative", what);
    values.push_back(item.get<uint64_t>());
  }
  return values;
}

// Where the tensors' bytes lie in the file.
struct Data {
  uint64_t offset, size;
};

// Checks one entry of the header against the file's data.
StoredTensor parse_tensor(const json& entry, const Data& data, const std::string& name,
                          const std::string& path) {
  const Part what{"", name, path}, its_shape{"the shape of ", name, path},
      its_offsets{"data_offsets of ", name, path};
  check<FileError>(
      entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
          entry.contains("shape") && entry.contains("data_offsets") && entry["dtype"].is_string(),
      "safetensors", "{} must have dtype, shape and data_offsets, and nothing else", what);
  const auto& dtype = entry["dtype"].get_ref<const std::string&>();
  const size_t size = stored_size(dtype), least = std::max<size_t>(size, 1);
  const auto dims = integers(entry["shape"], its_shape);
  // A tensor that nobody asks for may be anything.
  StoredTensor stored{.dtype = dtype};
  if (size == 0)
    stored.unread = fmt::format("has the dtype {:?}, which is not read", dtype);
  else if (dims.size() > Shape::max_rank)
    stored.unread = fmt::format("has {} dimensions, of which at most {} are read", dims.size(),
                                Shape::max_rank);
  std::optional<uint64_t> most = least;  // bytes, sizes of 0 apart: what a shape may have
  for (const uint64_t dim : dims) {
    if (dim > 0) most = checked_mul(most, dim);
    check<FileError>(most && *most <= INT64_MAX, "safetensors", "{} is too large", its_shape);
    if (dims.size() <= Shape::max_rank) stored.shape.push_back(static_cast<int64_t>(dim));
  }
  const bool is_empty = std::ranges::count(dims, 0) > 0;
  const uint64_t elements = is_empty ? 0 : *most / least, bytes = elements * size;
  if (dims.size() > Shape::max_rank) stored.shape = {static_cast<int64_t>(elements)};

  const auto offsets = integers(entry["data_offsets"], its_offsets);
  check<FileError>(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= data.size,
                   "safetensors", "{} must be a range within the file's {} bytes of data",
                   its_offsets, data.size);
  stored.offset = data.offset + offsets[0], stored.bytes = offsets[1] - offsets[0];
  check<FileError>(size == 0 || stored.bytes == bytes, "safetensors",
                   "{} must have {} bytes for {} {}, got {}", what, bytes, dtype, stored.shape,
                   stored.bytes);
  return stored;
}

// The format requires that every byte of the data belongs to exactly one tensor.
void check_coverage(const StoredTensors& tensors, const Data& data, const std::string& path) {
  struct Range {
    uint64_t begin, end;
    const std::string* name;
    auto operator<=>(const Range&) const = default;
  };
  std::vector<Range> ranges;
  ranges.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const uint64_t begin = tensor.offset - data.offset;
    ranges.push_back({begin, begin + tensor.bytes, &name});
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const Range& range : ranges) {
    check<FileError>(range.begin >= covered, "safetensors", "'{}': tensor {:?} overlaps another",
                     path, *range.name);
    check<FileError>(range.begin == covered, "safetensors",
                     "'{}': {} bytes before tensor {:?} belong to none", path,
                     range.begin - covered, *range.name);
    covered = range.end;
  }
  check<FileError>(covered == data.size, "safetensors",
                   "'{}': {} bytes at the end belong to no tensor", path, data.size - covered);
}

Metadata parse_metadata(const json& entries, const std::string& path) {
  Metadata metadata;
  if (entries.is_null()) return metadata;
  check<FileError>(entries.is_object(), "safetensors", "'{}': __metadata__ must be an object",
                   path);
  for (const auto& [key, value] : entries.items()) {
    check<FileError>(value.is_string(), "safetensors", "'{}': the metadata {:?} must be a string",
                     path, key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

std::pair<StoredTensors, Metadata> read_safetensors_header(const InputFile& file,
                                                           const std::string& path) {
  uint64_t length = 0;
  check<FileError>(file.size() >= sizeof length, "safetensors",
                   "'{}' is too short for a safetensors file, got {} bytes", path, file.size());
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  check<FileError>(length <= safetensors_header_limit, "safetensors",
                   "'{}': the header may have {} bytes, got {}; is this a safetensors file?", path,
                   safetensors_header_limit, length);
  check<FileError>(length <= file.size() - sizeof length, "safetensors",
                   "'{}' is cut short: the header has {} bytes, the file {}", path, length,
                   file.size());
  std::string text(length, '\0');
  file.read(sizeof length, std::as_writable_bytes(std::span(text)));
  check<FileError>(text.starts_with('{'), "safetensors", "'{}': the header must begin with {{",
                   path);
  const Data data{sizeof length + length, file.size() - sizeof length - length};

  StoredTensors tensors;
  Metadata metadata;
  bool has_metadata = false;
  const auto read = [&](const std::string& name, const json& entry) {
    bool first = !has_metadata;
    if (name == "__metadata__") {
      has_metadata = true;
      metadata = parse_metadata(entry, path);
    } else {
      first = tensors.emplace(name, parse_tensor(entry, data, name, path)).second;
    }
    check<FileError>(first, "safetensors", "'{}': the header names {:?} twice", path, name);
  };
  MemberReader reader(path, read);
  json::sax_parse(text, &reader);
  check_coverage(tensors, data, path);
  return {std::move(tensors), std::move(metadata)};
}

}  // namespace rw
