// Conversion of elements of every type to blocks of f32 and back.
#include "backends/cpu/loops/halves.h"
#include "backends/cpu/loops/level.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

template <class T, class U, class F>
inline void convert(const T* x, int64_t count, U* to, const F& f) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) to[i] = f(x[i]);
}

#if defined(__F16C__)

inline void read_register(const uint16_t* x, float* to) {
  store(to, load(reinterpret_cast<const Half*>(x)));
}
inline void write_register(const float* x, uint16_t* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(load(x), _MM_FROUND_TO_NEAREST_INT));
#else
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(load(x), _MM_FROUND_TO_NEAREST_INT));
#endif
}

// Converts as many elements at a time as a register has lanes, and the rest one by one, in the same
// way.
template <class T, class U, class F>
inline void in_registers(const T* x, int64_t count, U* to, const F& f) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(x + i, to + i);
  if (i == count) return;
  T last[lanes] = {};
  U made[lanes];
  for (int64_t k = i; k < count; ++k) last[k - i] = x[k];
  f(last, made);
  for (int64_t k = i; k < count; ++k) to[k] = made[k - i];
}

void read_halves(const uint16_t* x, int64_t count, float* to) {
  in_registers(x, count, to, read_register);
}
void write_halves(const float* x, int64_t count, uint16_t* to) {
  in_registers(x, count, to, write_register);
}

#else

void read_halves(const uint16_t* x, int64_t count, float* to) {
  convert(x, count, to, from_half);
}
void write_halves(const float* x, int64_t count, uint16_t* to) {
  convert(x, count, to, to_half);
}

#endif

// Stores a block past the caches, where its alignment allows that.
void stream(const float* x, int64_t count, float* to) {
  int64_t i = 0;
#if defined(__x86_64__)
  const bool is_aligned = reinterpret_cast<uintptr_t>(to) % sizeof(Vec) == 0;
  for (; is_aligned && i + lanes <= count; i += lanes)
#if defined(__AVX512F__)
    _mm512_stream_ps(to + i, load(x + i));
#elif defined(__AVX__)
    _mm256_stream_ps(to + i, load(x + i));
#else
    _mm_stream_ps(to + i, load(x + i));
#endif
#endif
  for (; i < count; ++i) to[i] = x[i];
}

}  // namespace

const float* read(const Operand& x, int64_t at, int64_t count, float* buffer) {
  switch (x.dtype) {
    case DType::f32:
      return x.as<float>(at);
    case DType::f16:
      read_halves(x.as<uint16_t>(at), count, buffer);
      break;
    case DType::bf16:
      convert(x.as<uint16_t>(at), count, buffer, from_brain);
      break;
    case DType::i32:
      convert(x.as<int32_t>(at), count, buffer, [](int32_t v) { return static_cast<float>(v); });
      break;
    case DType::u8:
      convert(x.as<uint8_t>(at), count, buffer, [](uint8_t v) { return static_cast<float>(v); });
  }
  return buffer;
}

void write(const Operand& y, int64_t at, int64_t count, const float* from) {
  switch (y.dtype) {
    case DType::f32:
      if (y.streams)
        stream(from, count, y.as<float>(at));
      else if (from != y.as<float>(at))
        __builtin_memcpy(y.as<float>(at), from, static_cast<size_t>(count) * sizeof(float));
      break;
    case DType::f16:
      write_halves(from, count, y.as<uint16_t>(at));
      break;
    case DType::bf16:
      convert(from, count, y.as<uint16_t>(at), to_brain);
      break;
    case DType::i32:
      convert(from, count, y.as<int32_t>(at), to_int);
      break;
    case DType::u8:
      convert(from, count, y.as<uint8_t>(at),
              [](float v) { return static_cast<uint8_t>(to_int(v)); });
  }
}

void to_floats(const std::byte* from, DType dtype, int64_t count, float* to) {
  read({const_cast<std::byte*>(from), dtype}, 0, count, to);
}
void from_floats(const float* from, int64_t count, DType dtype, std::byte* to) {
  write({to, dtype}, 0, count, from);
}

}  // namespace rw::cpu::REWIND_LEVEL
