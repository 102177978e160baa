// Runs one kernel on the Vulkan and on the cpu backend with the same inputs and compares.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../backends/open.h"
#include "../core/base/error.h"
#include "../shaders/params.h"

namespace rw::test {

// One binding: its type, what the kernel does with it, its contents before the call.
struct Operand {
  DType dtype;
  Access access;
  std::vector<float> values;
};
inline Operand in(DType t, std::vector<float> v) {
  return {t, Access::read, std::move(v)};
}
inline Operand inout(DType t, std::vector<float> v) {
  return {t, Access::read_write, std::move(v)};
}
inline Operand out(DType t, size_t n) {
  return {t, Access::write, std::vector<float>(n)};
}

// n values in [lo, hi), the same for the same seed.
inline std::vector<float> values(size_t n, float lo = -2, float hi = 2, uint32_t seed = 1) {
  std::vector<float> v(n);
  uint32_t state = seed * 2654435761u + 12345;
  for (float& x : v) {
    state = state * 1664525u + 1013904223u;
    x = lo + (hi - lo) * static_cast<float>(state >> 8) * 0x1p-24f;
  }
  return v;
}
// n whole numbers in [lo, hi).
inline std::vector<float> integers(size_t n, float lo, float hi, uint32_t seed = 1) {
  std::vector<float> v = values(n, lo, hi, seed);
  for (float& x : v) x = std::floor(x);
  return v;
}

inline void encode(float value, DType t, std::byte* to) {
  const uint16_t half = to_16_bits(t, value);
  const int32_t integer = is_float(t) ? 0 : static_cast<int32_t>(value);
  const uint8_t byte = static_cast<uint8_t>(integer);
  const void* from = t == DType::f32   ? static_cast<const void*>(&value)
                     : is_half(t)      ? static_cast<const void*>(&half)
                     : t == DType::i32 ? static_cast<const void*>(&integer)
                                       : &byte;
  std::memcpy(to, from, size_of(t));
}

inline float decode(DType t, const std::byte* from) {
  uint16_t half = 0;
  int32_t integer = 0;
  float value = 0;
  switch (t) {
    case DType::f32:
      std::memcpy(&value, from, 4);
      return value;
    case DType::f16:
    case DType::bf16:
      std::memcpy(&half, from, 2);
      return from_16_bits(t, half);
    case DType::i32:
      std::memcpy(&integer, from, 4);
      return static_cast<float>(integer);
    default:
      return static_cast<float>(std::to_integer<uint8_t>(*from));
  }
}

class KernelComparison {
 public:
  // For one test case: what others asked for is forgotten. Null where the machine has no Vulkan
  // device.
  static KernelComparison* instance() {
    static std::unique_ptr<KernelComparison> only = open();
    if (only) only->tolerance = 2e-5, only->code_tolerance = 0, only->is_aligned = false;
    return only.get();
  }

  const DeviceInfo& device() const { return vulkan_->info(); }

  // Relative to 1 + |expected|; 16-bit outputs also get their own rounding.
  double tolerance = 2e-5;
  // Of codes that stand for rounded numbers: the neighbour may be as near.
  int code_tolerance = 0;
  // Of kernels that take whole words only.
  bool is_aligned = false;

  // Calls the kernel with several element offsets on both backends: the outputs agree and no other
  // byte changes. Integer outputs must be equal.
  template <class P>
  void run(const char* kernel, std::vector<Operand> operands, P params,
           std::vector<uint32_t> variant, std::array<uint32_t, 3> threads) {
    for (size_t axis : {1, 2}) threads[axis] = std::max(1u, threads[axis]);
    for (uint32_t pattern = 0; pattern < (is_aligned ? 2 : 3); ++pattern) {
      for (size_t i = 0; i < operands.size(); ++i)
        params.offset[i] = pattern == 0 ? 0 : pattern == 1 ? 8 * (i + 1) : 3 * i + 1;
      const auto bytes = std::as_bytes(std::span(&params, 1));
      const Memories expected = run_on(*cpu_, kernel, operands, bytes, variant, threads);
      const Memories actual = run_on(*vulkan_, kernel, operands, bytes, variant, threads);
      INFO(std::string(kernel) << " of " << name(operands[0].dtype) << ", variant "
                               << (variant.empty() ? 0 : variant[0]) << ", offsets " << pattern
                               << ", threads " << threads[0] << " x " << threads[1]);
      for (size_t i = 0; i < operands.size(); ++i)
        compare(operands[i], i, params.offset[i], actual[i], expected[i]);
    }
  }

 private:
  using Memories = std::vector<std::vector<std::byte>>;
  static constexpr size_t guard = 64;  // bytes after each tensor

  static std::unique_ptr<KernelComparison> open() {
    auto both = std::make_unique<KernelComparison>();
    both->cpu_ = open_backend("cpu");
    try {
      both->vulkan_ = open_backend("vulkan");
    } catch (const DeviceError& e) {
      MESSAGE("skipped: " << e.what());
      return nullptr;
    }
    return both;
  }

  // The blocks' bytes after the call. Blocks begin full of 0xA5.
  static Memories run_on(Backend& backend, const char* kernel, const std::vector<Operand>& operands,
                         std::span<const std::byte> params, const std::vector<uint32_t>& variant,
                         std::array<uint32_t, 3> threads) {
    std::vector<Binding> bindings;
    Memories memories;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& o = operands[i];
      uint32_t offset;
      std::memcpy(&offset, params.data() + i * sizeof(offset), sizeof(offset));
      const size_t size = std::max<size_t>(1, offset + o.values.size()) * size_of(o.dtype);
      std::vector<std::byte> memory((size + 15) / 16 * 16 + guard, std::byte{0xA5});
      for (size_t k = 0; o.access != Access::write && k < o.values.size(); ++k)
        encode(o.values[k], o.dtype, &memory[(offset + k) * size_of(o.dtype)]);
      const uint32_t block = backend.allocate_block(memory.size());
      backend.write({block, 0, memory.size()}, memory.data());
      bindings.push_back({{block, 0, size}, o.dtype, o.access});
      memories.push_back(std::move(memory));
    }
    backend.run({.kernel = kernel,
                 .bindings = bindings,
                 .params = params,
                 .threads = threads,
                 .variant = variant});
    for (size_t i = 0; i < operands.size(); ++i) {
      backend.read({bindings[i].range.block, 0, memories[i].size()}, memories[i].data());
      backend.free_block(bindings[i].range.block);
    }
    return memories;
  }

  bool equal(DType t, float actual, float expected) const {
    if (std::isnan(expected)) return std::isnan(actual);
    if (!is_float(t)) return std::abs(actual - expected) <= static_cast<float>(code_tolerance);
    if (std::isinf(expected)) return actual == expected;
    const double rounding = t == DType::f16 ? 1e-3 : t == DType::bf16 ? 8e-3 : 0;
    const double limit = std::max(tolerance, rounding);
    return std::abs(double{actual} - expected) <= limit * (1 + std::abs(expected));
  }

  void compare(const Operand& o, size_t index, size_t offset, const std::vector<std::byte>& actual,
               const std::vector<std::byte>& expected) const {
    const size_t width = size_of(o.dtype), begin = offset * width;
    const size_t end = begin + o.values.size() * width;
    size_t wrong = 0;
    std::string first;
    for (size_t i = 0; i < o.values.size(); ++i) {
      const float a = decode(o.dtype, &actual[begin + i * width]);
      const float e = decode(o.dtype, &expected[begin + i * width]);
      if (equal(o.dtype, a, e)) continue;
      if (wrong++ == 0) first = fmt::format("element {}: {} instead of {}", i, a, e);
    }
    CHECK_MESSAGE(wrong == 0, "binding " << index << ": " << wrong << " wrong, " << first);
    size_t touched = 0;
    for (size_t i = 0; i < actual.size(); ++i)
      touched += (i < begin || i >= end) && actual[i] != std::byte{0xA5};
    CHECK_MESSAGE(touched == 0, "binding " << index << ": wrote outside the tensor");
  }

  std::unique_ptr<Backend> cpu_, vulkan_;
};

}  // namespace rw::test
