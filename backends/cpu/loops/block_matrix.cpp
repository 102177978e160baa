// Matrices in the blocks of GGUF files (shaders/params/quantize.h).
#include "backends/cpu/loops/block_codes.h"
#include "backends/cpu/loops/fold.h"
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// A code and the low end are rounded once together, as codes without a low end are.
template <class Type>
REWIND_INLINE void decode_block(const uint8_t* b, float* to) {
  Type::each_group(
      b, [=](int64_t first, float step, float low,
             const auto& codes) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < Type::group; i += lanes) {
          const Vec q = floats(codes(i, Ints()));
          store(to + first + i, Type::has_low ? mul_add(all(step), q, all(low)) : all(step) * q);
        }
      });
}

// ---- few rows of x -----------------------------------------------------------------------------

constexpr int64_t most_left = 8192;  // elements of all rows of x at a time
constexpr int64_t sum_size = 16;     // of x's elements, whose sums the low ends of blocks multiply
constexpr int64_t scale_size = 256;  // of those that share a scale as whole numbers

// Some columns of x, one row after the other: as f32, or as whole numbers of 16 bits.
struct Left {
  alignas(64) float x[most_left];
  float sums[most_left / sum_size];
  alignas(64) int16_t whole[most_left];
  float scales[most_left / 32];
  uint32_t largest;  // bits of the largest size of an element

  // Reads columns at to at + count of m rows.
  void fill(const Operand& from, int64_t cols, int64_t at, int64_t count, int64_t m) {
    Block buffer;
    largest = 0;
    for (int64_t r = 0; r < m; ++r)
      blocks_of(count, [&](int64_t i, int64_t size) {
        const float* v = read(from, r * cols + at + i, size, buffer.at);
        const uint32_t bits = largest_bits(v, size);
        largest = bits > largest ? bits : largest;
        __builtin_memcpy(x + r * count + i, v, static_cast<size_t>(size) * sizeof(float));
      });
  }

  // Sums x by groups.
  void add_up(int64_t count) {
    for (int64_t g = 0; g < count / sum_size; ++g) {
      Vec sum = {};
      for (int64_t i = 0; i < sum_size; i += lanes) sum += load(x + g * sum_size + i);
      sums[g] = total(sum);
    }
  }

  // Makes whole numbers of m rows of `count` elements: parts of 2^-15 of the largest one, where 16
  // bits of x have 2^-11 or 2^-8 of each. False if x has elements for which that will not do.
  bool round(int64_t count, int64_t m) {
    constexpr uint32_t least_bits = 0x0d000000u;  // 4e-31: quotients of it are normal
    for (int64_t r = 0; r < m; ++r)
      for (int64_t at = 0; at < count; at += scale_size) {
        float* const from = x + r * count + at;
        int16_t* const to = whole + r * count + at;
        const int64_t size = least(scale_size, count - at);
        const uint32_t most = largest_bits(from, size);
        if (most != 0 && most < least_bits) return false;
        const float scale = float_of(most) / 32767,
                    inverse = most == 0 ? 0 : 32767 / float_of(most);
        each(size, [=](int64_t i) {
          const float rounded = __builtin_nearbyintf(from[i] * inverse);
          to[i] = static_cast<int16_t>(static_cast<int32_t>(rounded));
          from[i] = rounded * scale;
        });
        scales[scale_of(r, count, at)] = scale;
      }
    return true;
  }
  static int64_t scale_of(int64_t row, int64_t count, int64_t at) {
    return row * divide_up(count, scale_size) + at / scale_size;
  }
};

// Sets parts[r] to products of the codes of a group with x from `place` on, and `count` further for
// the next row.
template <int64_t size, int rows, class Codes>
REWIND_INLINE void multiply_codes(const Codes& codes, Ints, const Left& left, int64_t place,
                                  int64_t count, Vec (&parts)[rows]) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) parts[r] = Vec{};
#pragma GCC unroll 8
  for (int64_t i = 0; i < size; i += lanes) {
    const Vec q = floats(codes(i, Ints()));
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
      parts[r] = mul_add(q, load(left.x + place + r * count + i), parts[r]);
  }
}
#ifdef REWIND_SHORTS
template <int64_t size, int rows, class Codes>
REWIND_INLINE void multiply_codes(const Codes& codes, Shorts, const Left& left, int64_t place,
                                  int64_t count, Vec (&parts)[rows]) {
  __m256i sums[rows];
#pragma GCC unroll 2
  for (int64_t i = 0; i < size; i += Shorts::count) {
    const auto q = (__m256i)codes(i, Shorts());
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const auto* const x = reinterpret_cast<const __m256i*>(left.whole + place + r * count + i);
      const __m256i products = _mm256_madd_epi16(q, _mm256_loadu_si256(x));
      sums[r] = i == 0 ? products : _mm256_add_epi32(sums[r], products);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) parts[r] = (Vec)_mm256_cvtepi32_ps(sums[r]);
}
#endif

// Adds the products of a row of blocks with `rows` rows of x, from `row` on, to `to`. Processors
// fetch ahead only to the end of a page, so blocks are asked for.
template <class Type, class Kind, int rows>
REWIND_INLINE void add_dots(const uint8_t* b, int64_t count, const Left& left, int64_t row,
                            float* to) {
  constexpr int64_t ahead = 4096, cache_line = 64;
  Vec sums[rows] = {};
  float lows[rows] = {};
  for (int64_t at = 0; at < count; at += Type::elements, b += Type::bytes) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < Type::bytes; k += cache_line) __builtin_prefetch(b + ahead + k);
    Type::each_group(
        b, [&](int64_t first, float step, float low, const auto& codes)
               __attribute__((always_inline)) {
                 const int64_t place = row * count + at + first;
                 Vec parts[rows];
                 multiply_codes<Type::group, rows>(codes, Kind(), left, place, count, parts);
#pragma GCC unroll 4
                 for (int r = 0; r < rows; ++r) {
                   const float scale = Kind::count == lanes
                                           ? step
                                           : step * left.scales[Left::scale_of(row + r, count, at)];
                   sums[r] = mul_add(all(scale), parts[r], sums[r]);
                   if (!Type::has_low) continue;
                   const float* const x = left.sums + (place + r * count) / sum_size;
                   lows[r] = mul_add(low, Type::group == sum_size ? x[0] : x[0] + x[1], lows[r]);
                 }
               });
  }
  for (int r = 0; r < rows; ++r) to[r] += total(sums[r]) + lows[r];
}

template <class Type, class Kind>
void add_row(const uint8_t* b, int64_t count, const Left& left, int64_t m, float* to) {
  int64_t r = 0;
  const auto add = [&]<int rows>() {
    add_dots<Type, Kind, rows>(b, count, left, r, to + r);
    r += rows;
  };
  while (r + 4 <= m) add.template operator()<4>();
  while (r + 2 <= m) add.template operator()<2>();
  if (r < m) add.template operator()<1>();
}

// The same one block after the other, as floats: an infinity times a code without its low end would
// have another sign, or be NaN.
template <class Type>
void add_floats(const uint8_t* b, int64_t count, const Left& left, int64_t m, float* to) {
  Block values;
  for (int64_t at = 0; at < count; at += Type::elements, b += Type::bytes) {
    decode_block<Type>(b, values.at);
    for (int64_t r = 0; r < m; ++r)
      to[r] += sum(
          Type::elements, [](auto x, auto y) { return x * y; }, left.x + r * count + at, values.at);
  }
}

template <class Type>
void add_rows(const uint8_t* b, int64_t row_bytes, int64_t rows, int64_t count, Left& left,
              int64_t m, bool is_narrow, float* to) {
  if (left.largest >= 0x7f800000u) {  // infinite, or NaN
    for (int64_t i = 0; i < rows; ++i)
      add_floats<Type>(b + i * row_bytes, count, left, m, to + i * m);
    return;
  }
#ifdef REWIND_SHORTS
  if (is_narrow && left.round(count, m)) {
    left.add_up(m * count);
    for (int64_t i = 0; i < rows; ++i)
      add_row<Type, Shorts>(b + i * row_bytes, count, left, m, to + i * m);
    return;
  }
#else
  (void)is_narrow;
#endif
  left.add_up(m * count);
  for (int64_t i = 0; i < rows; ++i)
    add_row<Type, Ints>(b + i * row_bytes, count, left, m, to + i * m);
}

}  // namespace

bool decode_blocks(const LoopCall& call) {
  const auto& p = params<BlockMatrixParams>(call);
  const uint8_t* const codes = operand(call, 0).as<const uint8_t>();
  const Operand y = operand(call, 1);
  const int64_t cols = p.cols, rows = p.rows, row_bytes = p.row_bytes;
  return with_type(call.constant[0], [&]<class Type>(Type) {
    constexpr int64_t most = block / Type::elements;
    const int64_t across = divide_up(cols, block);
    parallel_for(divide_up(rows, 16), rows * cols * y.width, [&](int64_t piece) {
      Block buffer;
      const int64_t end = least(rows, piece * 16 + 16);
      for (int64_t i = piece * 16 * across; i < end * across; ++i) {
        const int64_t row = i / across, at = i % across * block, count = least(block, cols - at);
        const uint8_t* const b = codes + row * row_bytes + at / Type::elements * Type::bytes;
        float* const to = place(y, row * cols + at, buffer.at);
        static_assert(most * Type::elements == block);
        for (int64_t k = 0; k * Type::elements < count; ++k)
          decode_block<Type>(b + k * Type::bytes, to + k * Type::elements);
        write(y, row * cols + at, count, to);
      }
    });
  });
}

bool multiply_blocks(const LoopCall& call) {
  const auto& p = params<BlockMatrixParams>(call);
  const Operand x = operand(call, 0), y = operand(call, 2);
  const uint8_t* const codes = operand(call, 1).as<const uint8_t>();
  const int64_t cols = p.cols, rows = p.rows, row_bytes = p.row_bytes, m = p.m;
  constexpr int64_t most_rows = 64;
  // Small pieces, so that few rows are shared evenly.
  const int64_t piece = rows < 256 ? 16 : rows < 1024 ? 32 : most_rows;
  const int64_t width = most_left / m / 256 * 256;
  return with_type(call.constant[0], [&]<class Type>(Type) {
    parallel_for(divide_up(rows, piece), rows * row_bytes, [&](int64_t number) {
      Left left;
      Block sums;  // [rows of the piece, m]
      const int64_t first = number * piece, count = least(piece, rows - first);
      for (int64_t i = 0; i < count * m; ++i) sums.at[i] = 0;
      for (int64_t at = 0; at < cols; at += width) {
        const int64_t size = least(width, cols - at);
        left.fill(x, cols, at, size, m);
        const uint8_t* const b = codes + first * row_bytes + at / Type::elements * Type::bytes;
        add_rows<Type>(b, row_bytes, count, size, left, m, x.dtype != DType::f32, sums.at);
      }
      float line[most_rows];
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t i = 0; i < count; ++i) line[i] = sums.at[i * m + r];
        write(y, r * rows + first, count, line);
      }
    });
  });
}

}  // namespace rw::cpu::REWIND_LEVEL
