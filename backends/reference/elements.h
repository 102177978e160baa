// A kernel call for the reference backend, with typed, bounds-checked elements and parameters.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "../../core/backend/backend.h"
#include "../../core/base/checked.h"
#include "../../core/base/dtype.h"
#include "../../core/base/error.h"
#include "../../shaders/params.h"
#include "real.h"

namespace rw::reference {

// One binding. Index 0 is the element that the parameters' offset points at.
class Elements {
 public:
  Elements(std::string_view kernel, std::byte* bytes, uint64_t size_bytes, DType dtype,
           uint64_t offset)
      : kernel_(kernel),
        bytes_(bytes),
        end_(size_bytes / size_of(dtype)),
        offset_(offset),
        dtype_(dtype) {}

  DType dtype() const { return dtype_; }

  Real get(uint64_t i) const {
#ifdef REWIND_REFERENCE_F64
    if (is_float(dtype_)) return real_at(at(i, size_of(dtype_), false), dtype_);
#endif
    switch (dtype_) {
      case DType::f32:
        return load<float>(i);
      case DType::f16:
        return from_half(load<uint16_t>(i));
      case DType::bf16:
        return from_brain(load<uint16_t>(i));
      case DType::i32:
        return static_cast<Real>(load<int32_t>(i));
      case DType::u8:
        return load<uint8_t>(i);
    }
    return 0;
  }

  void set(uint64_t i, Real value) {
#ifdef REWIND_REFERENCE_F64
    if (is_float(dtype_)) return set_real_at(at(i, size_of(dtype_), true), dtype_, value);
#endif
    switch (dtype_) {
      case DType::f32:
        return store(i, static_cast<float>(value));
      case DType::f16:
        return store(i, to_half(static_cast<float>(value)));
      case DType::bf16:
        return store(i, to_brain(static_cast<float>(value)));
      case DType::i32:
        return store<int32_t>(i, to_i32(value));
      case DType::u8:
        return store<uint8_t>(i, static_cast<uint8_t>(to_i32(value)));
    }
  }

  int32_t geti(uint64_t i) const {
    switch (dtype_) {
      case DType::i32:
        return load<int32_t>(i);
      case DType::u8:
        return load<uint8_t>(i);
      default:
        return to_i32(get(i));
    }
  }

  // u8 keeps the low 8 bits.
  void seti(uint64_t i, int32_t value) {
    switch (dtype_) {
      case DType::i32:
        return store<int32_t>(i, value);
      case DType::u8:
        return store<uint8_t>(i, static_cast<uint8_t>(value));
      default:
        return set(i, static_cast<Real>(value));
    }
  }

  // Elements [start, start + count), for the kernels whose inner loops run over plain arrays.
  std::vector<double> to_doubles(uint64_t start, uint64_t count) const {
    std::vector<double> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = get(start + i);
    return values;
  }

  void set_all(const std::vector<Real>& values) {
    for (uint64_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

 private:
  template <class T>
  T load(uint64_t i) const {
    T value;
    std::memcpy(&value, at(i, sizeof(T), false), sizeof(T));
    return value;
  }
  template <class T>
  void store(uint64_t i, T value) {
    std::memcpy(at(i, sizeof(T), true), &value, sizeof(T));
  }
  std::byte* at(uint64_t i, size_t size, bool writes) const {
    check<ShapeError>(i + offset_ < end_, kernel_,
                      "elements must lie inside the binding, got element {} + offset {} of {}", i,
                      offset_, end_);
    std::byte* place = bytes_ + (i + offset_) * size;
    witness(place, size, writes);
    return place;
  }

  std::string_view kernel_;
  std::byte* bytes_;
  uint64_t end_;  // the number of elements in the binding
  uint64_t offset_;
  DType dtype_;
};

// A kernel call with its bindings resolved to host memory. A kernel asks for each binding by its
// access, so a caller's wrong access flag (a lost barrier on a GPU) is an error here.
class Call {
 public:
  Call(const KernelCall& call, std::span<std::byte* const> memory) : call_(call), memory_(memory) {}

  std::string_view kernel() const { return call_.kernel; }

  template <class Params>
  Params params() const {
    return call_.params_as<Params>();  // its size was checked against the kernel table
  }

  // Specialization constant i, or 0 if the call gives none.
  uint32_t variant(size_t i) const { return call_.constant(i); }

  Elements in(size_t i) const { return elements(i, true, false); }
  Elements out(size_t i) const { return elements(i, false, true); }
  Elements inout(size_t i) const { return elements(i, true, true); }

 private:
  Elements elements(size_t i, bool reads, bool writes) const {
    const Binding& binding = call_.bindings[i];
    check<ValueError>(!(reads && binding.access == Access::write), kernel(),
                      "binding {} is read, but the call declares it write-only", i);
    check<ValueError>(!(writes && binding.access == Access::read), kernel(),
                      "binding {} is written, but the call declares it read-only", i);
    uint32_t offset;  // every struct begins with one offset per binding
    std::memcpy(&offset, call_.params.data() + i * sizeof(offset), sizeof(offset));
    return {kernel(), memory_[i], binding.range.size, binding.dtype, offset};
  }

  const KernelCall& call_;
  std::span<std::byte* const> memory_;
};

// Position of the dense (row-major) element i of `shape` in a tensor with these strides.
inline uint64_t strided(uint64_t i, uint32_t rank, const uint32_t* shape, const uint32_t* stride) {
  uint64_t position = 0;
  for (uint32_t d = rank; d-- > 0;) {
    position += i % shape[d] * stride[d];
    i /= shape[d];
  }
  return position;
}

}  // namespace rw::reference
