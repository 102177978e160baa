// The common base of all files of loops. It is compiled once per level, so all of it lies in the
// level's namespace and calls no inline function of others (tests/checks/check_levels.py).
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/base/dtype.h"
#include "../../../shaders/params.h"
#include "../loop_call.h"
#include "../work.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Marks a function that loops call for each element: in a large unit compilers would leave calls,
// and no loop that has one becomes vectors.
#define REWIND_INLINE [[gnu::always_inline]] inline

// Marks a loop whose operands are the same memory, or do not overlap.
#if defined(__clang__)
#define REWIND_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define REWIND_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace rw::cpu::REWIND_LEVEL {

using namespace kernels;

// As many f32 values as a register has. A Vec may lie at any address.
#if defined(__AVX512F__)
constexpr int64_t lanes = 16;
#elif defined(__AVX__)
constexpr int64_t lanes = 8;
#else
constexpr int64_t lanes = 4;
#endif
typedef float Vec __attribute__((vector_size(lanes * 4), aligned(4), may_alias));

inline Vec load(const float* from) {
  return *reinterpret_cast<const Vec*>(from);
}
inline void store(float* to, Vec x) {
  *reinterpret_cast<Vec*>(to) = x;
}
inline Vec all(float x) {
  return x - Vec{};
}

// Computes a * b + c, rounded once if the level has such an instruction.
inline float mul_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Asks for so many bytes from an address on: processors fetch ahead only to the end of a page.
REWIND_INLINE void fetch(const void* from, int64_t bytes) {
  constexpr int64_t cache_line = 64;
#pragma GCC unroll 8
  for (int64_t at = 0; at < bytes; at += cache_line)
    __builtin_prefetch(static_cast<const char*>(from) + at);
}

inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline int64_t bytes_of(DType t) {
  return t == DType::f32 || t == DType::i32 ? 4 : t == DType::u8 ? 1 : 2;
}
inline bool is_real(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}

template <class P>
const P& params(const LoopCall& call) {
  return *static_cast<const P*>(call.params);
}

// Calls f(i) for i in [0, count), in vectors: no call may read what another has written. f captures
// by value, [=], so that captured values stay in registers; in the caller's memory they could
// change with each store.
template <class F>
inline void each(int64_t count, F f) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) f(i);
}

// ---- work sharing ------------------------------------------------------------------------------

// Waking other threads takes as long as moving so many bytes.
constexpr int64_t least_shared_bytes = 64 << 10;

// Calls body(i) for i in [0, count). `bytes` is the number that all of them move; small work stays
// on this thread. Pieces must depend only on sizes, never on the number of threads, so that the
// bits do, too.
template <class Body>
inline void parallel_for(int64_t count, int64_t bytes, const Body& body) {
  if (count <= 1 || bytes < least_shared_bytes) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  cpu::share_out(
      count, [](const void* shared, int64_t i) { (*static_cast<const Body*>(shared))(i); }, &body);
}

// ---- blocks of f32 -----------------------------------------------------------------------------

// The most elements of a block: three blocks stay in the first-level cache.
constexpr int64_t block = 1024;
struct alignas(64) Block {
  float at[block];
};
// The memory of a block for elements of another type.
template <class T>
T* as(Block& memory) {
  return reinterpret_cast<T*>(memory.at);
}

// A binding, from its element 0 on.
struct Operand {
  std::byte* data;
  DType dtype;
  int64_t width = bytes_of(dtype);  // bytes per element
  bool streams = false;             // f32 are stored past the caches

  template <class T>
  T* as(int64_t at = 0) const {
    return reinterpret_cast<T*>(data) + at;
  }
  Operand from(int64_t at) const { return {data + at * width, dtype, width}; }
};
inline Operand operand(const LoopCall& call, size_t i) {
  return {call.data[i], call.dtype[i]};
}
// Returns a result of n elements, all of which each_block() makes. A result larger than caches is
// stored past them: otherwise the processor would read its lines first, and evict data that is
// needed sooner.
inline Operand result(const LoopCall& call, size_t i, int64_t n) {
  constexpr int64_t least_streamed_bytes = 32 << 20;
  Operand y = operand(call, i);
  y.streams = y.dtype == DType::f32 && n * y.width >= least_streamed_bytes;
  // A result that replaces an operand is in the caches already.
  for (size_t k = 0; k < i; ++k) y.streams = y.streams && call.data[k] != y.data;
  return y;
}

// Returns `count` elements (at most a block) from `at` on as f32: where they are, or converted into
// `buffer`.
const float* read(const Operand& x, int64_t at, int64_t count, float* buffer);
// Returns where elements of y may be made: in place, or in `buffer`, from which write() takes them.
inline float* place(const Operand& y, int64_t at, float* buffer) {
  return y.dtype == DType::f32 && !y.streams ? y.as<float>(at) : buffer;
}
// Rounds to nearest even; integers toward zero, as casts do. Does nothing if `from` is their place.
void write(const Operand& y, int64_t at, int64_t count, const float* from);

// The functions of ../halves.h for this level.
void to_floats(const std::byte* from, DType dtype, int64_t count, float* to);
void from_floats(const float* from, int64_t count, DType dtype, std::byte* to);

// Calls body(at, count) for blocks of [0, n), shared in pieces. `width` is the bytes of an element,
// over all operands.
template <class Body>
inline void each_block(int64_t n, int64_t width, const Body& body) {
  constexpr int64_t piece = 16 * block;
  parallel_for(divide_up(n, piece), n * width, [&](int64_t i) {
    const int64_t end = least(n, (i + 1) * piece);
    for (int64_t at = i * piece; at < end; at += block) body(at, least(block, end - at));
#if defined(__x86_64__)
    _mm_sfence();  // makes streamed results visible to other threads
#endif
  });
}

}  // namespace rw::cpu::REWIND_LEVEL
