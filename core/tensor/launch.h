// Leads from tensors to the device: kernel calls with their bindings, element offsets and
// workspace, and host copies. Tensors that a call declares as written count as written.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>

#include "../../shaders/params.h"
#include "tensor.h"

namespace rw {

// Memory that contains several tensors, for kernels that find them by themselves.
struct MemoryRange {
  BufferRange range;  // its offset is a multiple of DeviceInfo::alignment
  DType dtype = DType::f32;
  uint64_t moves = 0;   // Device::moves() at that time
  uint64_t unread = 0;  // bytes that belong to none of the tensors
};

struct Arg {
  const Tensor* tensor;  // null: `memory`, on the same device as the other arguments
  Access access;
  MemoryRange memory = {};
};
inline Arg in(const Tensor& t) {
  return {&t, Access::read};
}
inline Arg out(const Tensor& t) {
  return {&t, Access::write};
}
inline Arg inout(const Tensor& t) {
  return {&t, Access::read_write};
}
inline Arg in(const MemoryRange& memory) {
  return {nullptr, Access::read, memory};
}
// Memory that gets the contents which it had before: to saved values, this is no write.
inline Arg restored(const MemoryRange& memory) {
  return {nullptr, Access::write, memory};
}

// Specialization constants 0, 1, ... of a call.
struct Variant {
  std::array<uint32_t, 8> values{};
  size_t count = 0;
  Variant() = default;
  Variant(std::initializer_list<uint32_t> list) : count(list.size()) {
    std::copy(list.begin(), list.end(), values.begin());
  }
};

struct Launch {
  std::array<uint32_t, 3> threads = {1, 1, 1};
  Variant variant = {};
  double flops = 0;
};

namespace detail {
// Queues the call; writes the element offset of every binding to the head of `params`. At least
// one argument is a tensor.
void launch(const char* kernel, std::span<const Arg> args, std::span<std::byte> params,
            const Launch& how);
}  // namespace detail

// Queues `kernel` on the tensors' device. P is its struct of shaders/params.h.
template <class P>
void launch(const char* kernel, std::initializer_list<Arg> args, P params, const Launch& how) {
  static_assert(sizeof(P) <= 124,
                "push constants are limited to 128 bytes, the first group among them");
  check(args.size() <= sizeof(params.offset) / sizeof(params.offset[0]), kernel,
        "the parameters have too few offsets for {} tensors", args.size());
  detail::launch(kernel, std::span(args.begin(), args.size()),
                 std::as_writable_bytes(std::span(&params, 1)), how);
}

// Returns n as the kernels' 32-bit count; throws ShapeError beyond 2^32 - 1.
inline uint32_t count32(int64_t n, OpName op) {
  check<ShapeError>(n <= std::numeric_limits<uint32_t>::max(), op,
                    "a tensor holds at most 2^32 - 1 elements, got {}", n);
  return static_cast<uint32_t>(n);
}
// Returns threads.x of a flat kernel over n elements.
uint32_t flat_threads(int64_t n);
// Tells whether a tensor is dense, with an offset that suits the flat kernels' wide loads.
bool is_flat(const Tensor& t);
void copy_dims(const Shape& from, uint32_t (&to)[REWIND_MAX_DIMS]);

}  // namespace rw
