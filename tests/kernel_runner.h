// Runs single kernels of one backend on small host arrays.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "../core/backend/backend.h"
#include "../core/base/dtype.h"

namespace rw::test {

class KernelRunner {
 public:
  explicit KernelRunner(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  Backend& backend() { return *backend_; }

  // A tensor in its own block; values are converted to `dtype`.
  Binding upload(const std::vector<float>& values, DType dtype = DType::f32) {
    Binding binding = allocate(values.size(), dtype);
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    for (size_t i = 0; i < values.size(); ++i) encode(values[i], dtype, &bytes[i * size_of(dtype)]);
    backend_->write(binding.range, bytes.data());
    return binding;
  }

  Binding allocate(size_t count, DType dtype = DType::f32) {
    const uint64_t bytes = count * size_of(dtype);
    return {
        {backend_->allocate_block((bytes + 15) / 16 * 16), 0, bytes}, dtype, Access::read_write};
  }

  std::vector<float> download(const Binding& binding) {
    std::vector<std::byte> bytes(binding.range.size);
    backend_->read(binding.range, bytes.data());
    std::vector<float> values(bytes.size() / size_of(binding.dtype));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = decode(binding.dtype, &bytes[i * size_of(binding.dtype)]);
    return values;
  }

  template <class Params>
  void run(std::string_view kernel, std::initializer_list<Binding> bindings, const Params& params,
           std::initializer_list<uint32_t> variant = {},
           std::array<uint32_t, 3> threads = {1, 1, 1}) {
    KernelCall call;
    call.kernel = kernel;
    call.bindings = {bindings.begin(), bindings.size()};
    call.params = std::as_bytes(std::span(&params, 1));
    call.threads = threads;
    call.variant = {variant.begin(), variant.size()};
    backend_->run(call);
  }

 private:
  static void encode(float value, DType dtype, std::byte* to) {
    const uint16_t half = to_16_bits(dtype, value);
    const int32_t integer = is_float(dtype) ? 0 : static_cast<int32_t>(value);
    const uint8_t byte = static_cast<uint8_t>(integer);
    switch (dtype) {
      case DType::f32:
        std::memcpy(to, &value, 4);
        break;
      case DType::f16:
      case DType::bf16:
        std::memcpy(to, &half, 2);
        break;
      case DType::i32:
        std::memcpy(to, &integer, 4);
        break;
      case DType::u8:
        std::memcpy(to, &byte, 1);
        break;
    }
  }

  static float decode(DType dtype, const std::byte* from) {
    float value = 0;
    uint16_t half = 0;
    int32_t integer = 0;
    switch (dtype) {
      case DType::f32:
        std::memcpy(&value, from, 4);
        return value;
      case DType::f16:
      case DType::bf16:
        std::memcpy(&half, from, 2);
        return from_16_bits(dtype, half);
      case DType::i32:
        std::memcpy(&integer, from, 4);
        return static_cast<float>(integer);
      case DType::u8:
        return static_cast<float>(std::to_integer<uint8_t>(*from));
    }
    return value;
  }

  std::unique_ptr<Backend> backend_;
};

// Largest |a - b| over both arrays; infinite when sizes differ or a value is not finite.
inline double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace rw::test
