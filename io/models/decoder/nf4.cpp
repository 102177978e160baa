#include "io/models/decoder/nf4.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/blocks/nf4.h"
#include "core/files/json_file.h"
#include "io/models/decoder/json.h"

namespace rw {

namespace {

const char* const nf4_me = "load_decoder";
// The name of a weight with this behind it is that of a text in which bitsandbytes describes it.
const std::string nf4_state = ".quant_state.bitsandbytes__nf4";

}  // namespace

const SafetensorsFile* file_with(const std::list<SafetensorsFile>& files, const std::string& name) {
  for (const SafetensorsFile& file : files)
    if (file.tensors().contains(name)) return &file;
  return nullptr;
}

StoredNf4::StoredNf4(const std::list<SafetensorsFile>& files, std::string weight)
    : files_(&files), weight_(std::move(weight)) {
  read_state();
  check_sizes();
  const std::vector<std::byte> values = bytes(weight_ + ".quant_map");
  check<FileError>(std::memcmp(values.data(), blocks::nf4_values().data(), values.size()) == 0,
                   nf4_me, "tensor {:?} must have the values of NF4", weight_ + ".quant_map");
}

std::vector<std::string> StoredNf4::tensors() const {
  std::vector<std::string> names;
  for (const std::string& part :
       {std::string(), std::string(".absmax"), std::string(".quant_map"),
        std::string(".nested_absmax"), std::string(".nested_quant_map"), nf4_state})
    names.push_back(weight_ + part);
  return names;
}

const StoredTensor& StoredNf4::stored(const std::string& name) const {
  const SafetensorsFile* file = file_with(*files_, name);
  check<FileError>(file != nullptr, nf4_me, "'{}' has no tensor {:?}", files_->front().path(),
                   name);
  return file->tensors().find(name)->second;
}

std::vector<std::byte> StoredNf4::bytes(const std::string& name) const {
  const StoredTensor& from = stored(name);
  std::vector<std::byte> read(from.bytes);
  InputFile(file_with(*files_, name)->path()).read(from.offset, read);
  return read;
}

void StoredNf4::read_state() {
  const std::string name = weight_ + nf4_state;
  check<FileError>(stored(name).dtype == "U8" && stored(name).bytes <= 1 << 16, nf4_me,
                   "tensor {:?} must be a short text, got {} bytes of {}", name, stored(name).bytes,
                   stored(name).dtype);
  const std::vector<std::byte> text = bytes(name);
  const auto* const from = reinterpret_cast<const char*>(text.data());
  const nlohmann::json state = nlohmann::json::parse(from, from + text.size(), nullptr, false);
  check<FileError>(state.is_object(), nf4_me, "tensor {:?} must be a JSON object", name);
  for (const auto& [key, wanted] : {std::pair<const char*, nlohmann::json>{"quant_type", "nf4"},
                                    {"blocksize", blocks::nf4.elements},
                                    {"nested_blocksize", blocks::nf4_group}})
    check<FileError>(
        state.contains(key) && state[key] == wanted, nf4_me,
        "tensor {:?} must have {} {}, as NF4 with double quantisation has "
        "(bnb_4bit_use_double_quant); other quantisations of bitsandbytes are not read",
        name, key, wanted.dump());
  constexpr float most = std::numeric_limits<float>::max();
  offset_ = json_number<float>(state, "nested_offset", -most, most, name);
  const nlohmann::json shape = state.value("shape", nlohmann::json());
  check<FileError>(shape.is_array() && shape.size() == 2, nf4_me,
                   "tensor {:?} must have the shape of a matrix", name);
  shape_ = {bounded_number<int64_t>(shape[0], 1, 1 << 30, name),
            bounded_number<int64_t>(shape[1], 1, 1 << 30, name)};
  check<FileError>(shape_[1] % blocks::nf4.elements == 0, nf4_me,
                   "tensor {:?} must have rows of whole blocks of {} elements, got {}", weight_,
                   blocks::nf4.elements, shape_);
}

void StoredNf4::check_sizes() const {
  const int64_t count = shape_.numel() / blocks::nf4.elements,
                groups = (count + blocks::nf4_group - 1) / blocks::nf4_group;
  const auto expect = [&](const char* part, const char* dtype, int64_t size) {
    const StoredTensor& found = stored(weight_ + part);
    check<FileError>(found.dtype == dtype && found.shape.numel() == size, nf4_me,
                     "tensor {:?} must have {} elements of {}, got {} of {}", weight_ + part, size,
                     dtype, found.shape.numel(), found.dtype);
  };
  expect("", "U8", shape_.numel() / 2);
  expect(".absmax", "U8", count);
  expect(".quant_map", "F32", 16);
  expect(".nested_absmax", "F32", groups);
  expect(".nested_quant_map", "F32", 256);
}

void StoredNf4::read(const BlockMatrix& to) const {
  const Tensor& codes = to.codes();
  file_with(*files_, weight_)->read(weight_, 0, slice(codes, 0, 0, to.rows()));
  const Tensor behind = slice(codes, 0, to.rows(), codes.size(0));
  std::vector<uint8_t> shared(static_cast<size_t>(behind.numel()));
  const auto put = [&](uint64_t at, const auto* from, uint64_t count) {
    std::memcpy(&shared[at], from, count);
  };
  const std::vector<std::byte> map = bytes(weight_ + ".nested_quant_map"),
                               factors = bytes(weight_ + ".nested_absmax"),
                               scales = bytes(weight_ + ".absmax");
  put(0, map.data(), map.size());
  put(map.size(), &offset_, sizeof offset_);
  for (uint64_t first = 0; first < scales.size(); first += blocks::nf4_group) {
    put(blocks::nf4_factor_at(first), &factors[first / blocks::nf4_group * sizeof(float)],
        sizeof(float));
    put(blocks::nf4_code_at(first), &scales[first],
        std::min<uint64_t>(blocks::nf4_group, scales.size() - first));
  }
  Tensor(behind).copy_from(std::span<const uint8_t>(shared));
}

namespace {

Tensor bytes_tensor(std::span<const std::byte> bytes, const Shape& shape) {
  Tensor made = empty(shape, DType::u8);
  made.copy_from(std::span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  return made;
}

std::vector<float> floats_at(const std::byte* from, size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), from, count * sizeof(float));
  return values;
}

Tensor vector_of(const std::vector<float>& values) {
  return tensor(values, {std::ssize(values)});
}

}  // namespace

StateDict nf4_tensors(const std::string& name, const Tensor& weight, DType dtype) {
  check(weight.rank() == 2 && weight.size(1) % blocks::nf4.elements == 0, "save_decoder",
        "weights in NF4 must have rows of whole blocks of {} elements, got '{}' {}",
        blocks::nf4.elements, name, weight.shape());
  const auto rows = static_cast<uint64_t>(weight.size(0)),
             columns = static_cast<uint64_t>(weight.size(1));
  const uint64_t row_bytes = blocks::nf4_row_bytes(columns), codes = rows * row_bytes,
                 count = rows * columns / blocks::nf4.elements;
  std::vector<std::byte> stored(blocks::nf4_stored_rows(rows, columns) * row_bytes), scales;
  check(blocks::encode_nf4(weight.to_vector(), columns, stored), "save_decoder",
        "weights in NF4 must be finite, '{}' is not", name);
  const std::byte* const shared = &stored[codes];
  std::vector<float> factors;
  for (uint64_t b = 0; b < count; ++b) {
    scales.push_back(shared[blocks::nf4_code_at(b)]);
    if (b % blocks::nf4_group == 0)
      factors.push_back(floats_at(shared + blocks::nf4_factor_at(b), 1).front());
  }
  const std::vector<float> map = floats_at(shared, 257);  // with the offset behind it
  const std::string state = nlohmann::ordered_json({{"quant_type", "nf4"},
                                                    {"blocksize", blocks::nf4.elements},
                                                    {"dtype", torch_dtype_name(dtype)},
                                                    {"shape", {rows, columns}},
                                                    {"nested_blocksize", blocks::nf4_group},
                                                    {"nested_dtype", "float32"},
                                                    {"nested_offset", map.back()}})
                                .dump();
  const auto values = blocks::nf4_values();
  const auto size = [](uint64_t n) { return static_cast<int64_t>(n); };
  return {{name, bytes_tensor(std::span(stored).first(codes), {size(codes), 1})},
          {name + ".absmax", bytes_tensor(scales, {size(count)})},
          {name + ".quant_map", vector_of({values.begin(), values.end()})},
          {name + ".nested_absmax", vector_of(factors)},
          {name + ".nested_quant_map", vector_of({map.begin(), map.end() - 1})},
          {name + nf4_state, bytes_tensor(std::as_bytes(std::span(state)), {size(state.size())})}};
}

nlohmann::ordered_json nf4_config_json(DType dtype) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", true},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_compute_dtype", torch_dtype_name(dtype)}};
}

std::map<std::string, StoredNf4> nf4_weights(const std::list<SafetensorsFile>& files) {
  std::map<std::string, StoredNf4> found;
  for (const SafetensorsFile& file : files)
    for (const auto& [name, stored] : file.tensors()) {
      check<FileError>(
          !name.ends_with(".quant_state.bitsandbytes__fp4") && !name.ends_with(".SCB"), nf4_me,
          "'{}' has {:?}: of bitsandbytes' quantisations, NF4 with double quantisation is read",
          file.path(), name);
      if (!name.ends_with(nf4_state)) continue;
      const std::string weight = name.substr(0, name.size() - nf4_state.size());
      found.emplace(weight, StoredNf4(files, weight));
    }
  return found;
}

}  // namespace rw
