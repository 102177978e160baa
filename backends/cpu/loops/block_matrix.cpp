// Matrices in blocks (shaders/params/quantize.h).
#include "backends/cpu/loops/block_product.h"
#include "backends/cpu/loops/block_rows.h"
#include "backends/cpu/loops/fold.h"
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// ---- few rows of x -----------------------------------------------------------------------------

constexpr int64_t most_left = 1 << 17;  // elements of all rows of x at a time
constexpr int64_t least_group = 16;  // of x's elements, whose sums the low ends of blocks multiply
constexpr int64_t scale_size = 256;  // of those that share a scale as whole numbers
constexpr int64_t ahead = 4096;      // the bytes of blocks that are asked for before they are read

// Rows of x, one after the other: as f32, or as whole numbers of 16 bits.
struct Left {
  int64_t cols, rows;
  bool is_finite;
  const float* x;                                   // null: whole numbers
  alignas(64) float sums[most_left / least_group];  // of groups
  float scales[most_left / scale_size + BLOCK_ROWS];
  alignas(64) float memory[most_left];

  int16_t* whole() { return reinterpret_cast<int16_t*>(memory); }
  const int16_t* whole() const { return reinterpret_cast<const int16_t*>(memory); }
  // Their high and their low bytes, for blocks of 256, as whole = 256 * high + low.
  const int8_t* high() const { return reinterpret_cast<const int8_t*>(memory); }
  const int8_t* low() const { return high() + most_left; }
  const float* scales_of(int64_t row) const { return scales + row * divide_up(cols, scale_size); }

  // As floats alone: infinities times codes without low ends are right.
  void fill_floats(const Operand& from) {
    Block buffer;
    is_finite = true;
    x = memory;
    blocks_of(rows * cols, [&](int64_t at, int64_t size) {
      const float* const v = read(from, at, size, buffer.at);
      __builtin_memcpy(memory + at, v, static_cast<size_t>(size) * sizeof(float));
    });
  }
  // The same with the sums of groups; for 16 bits as whole numbers, where that will do.
  template <class Type>
  void fill(const Operand& from) {
    constexpr int64_t group = Type::group;
    static_assert(group >= least_group);
    const int64_t count = rows * cols;
    Block buffer;
    uint32_t largest = 0;
    blocks_of(count, [&](int64_t at, int64_t size) {
      const uint32_t bits = largest_bits(read(from, at, size, buffer.at), size);
      largest = bits > largest ? bits : largest;
    });
    is_finite = largest < 0x7f800000u;
    if (!is_finite) return;
#ifdef REWIND_SHORTS
    x = nullptr;
    if (from.dtype != DType::f32 && round<Type>(from)) return;
#endif
    x = memory;
    blocks_of(count, [&](int64_t at, int64_t size) {
      const float* const v = read(from, at, size, buffer.at);
      __builtin_memcpy(memory + at, v, static_cast<size_t>(size) * sizeof(float));
      add_up<group>(v, size, sums + at / group);
    });
  }

 private:
  template <int64_t group>
  static void add_up(const float* v, int64_t count, float* to) {
    for (int64_t g = 0; g < count / group; ++g) {
      Vec sum = {};
      for (int64_t i = 0; i < group; i += lanes) sum += load(v + g * group + i);
      to[g] = sum_of_lanes(sum);
    }
  }

  // Makes whole numbers: parts of 2^-15 of the largest one, where 16 bits of x have 2^-11 or 2^-8
  // of each. False if x has elements for which that will not do.
  template <class Type>
  bool round(const Operand& from) {
    constexpr float most_whole = 127 * 256 + 127;  // has a high byte
    constexpr uint32_t least_bits = 0x0d000000u;   // 4e-31: quotients of it are normal
    float* scale = scales;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t at = 0; at < cols; at += scale_size) {
        const int64_t size = least(scale_size, cols - at), place = r * cols + at;
        float rounded[scale_size];
        read(from, place, size, rounded);
        const uint32_t most = largest_bits(rounded, size);
        if (most != 0 && most < least_bits) return false;
        const float part = float_of(most) / most_whole,
                    inverse = most == 0 ? 0 : most_whole / float_of(most);
        float* const values = rounded;
        each(size, [=](int64_t i) { values[i] = __builtin_nearbyintf(values[i] * inverse); });
        if constexpr (Type::elements == 256) {
          auto* const high = reinterpret_cast<int8_t*>(memory) + place;
          each(size, [=](int64_t i) {
            const auto whole = static_cast<int32_t>(values[i]), top = (whole + 128) >> 8;
            high[i] = static_cast<int8_t>(top);
            high[i + most_left] = static_cast<int8_t>(whole - 256 * top);
          });
        } else {
          int16_t* const to = whole() + place;
          each(size,
               [=](int64_t i) { to[i] = static_cast<int16_t>(static_cast<int32_t>(values[i])); });
        }
        each(size, [=](int64_t i) { values[i] *= part; });
        add_up<Type::group>(rounded, size, sums + place / Type::group);
        *scale++ = part;
      }
    return true;
  }
};

// The products of the codes of a group with x from `place` on, by lanes.
template <int64_t size, class Codes>
REWIND_INLINE Vec codes_times(const Codes& codes, Ints, const Left& left, int64_t place) {
  Vec sum = {};
#pragma GCC unroll 8
  for (int64_t i = 0; i < size; i += lanes)
    sum = mul_add(floats(codes(i, Ints())), load(left.x + place + i), sum);
  return sum;
}
#ifdef REWIND_SHORTS
template <int64_t size, class Codes>
REWIND_INLINE Vec codes_times(const Codes& codes, Shorts, const Left& left, int64_t place) {
  __m256i sum;
#pragma GCC unroll 2
  for (int64_t i = 0; i < size; i += Shorts::count) {
    const auto* const x = reinterpret_cast<const __m256i*>(left.whole() + place + i);
    const __m256i products = _mm256_madd_epi16((__m256i)codes(i, Shorts()), _mm256_loadu_si256(x));
    sum = i == 0 ? products : _mm256_add_epi32(sum, products);
  }
  return (Vec)_mm256_cvtepi32_ps(sum);
}
#endif

// Adds the low ends of eight groups times the sums of these groups of x, whose rows have so many.
template <int rows>
REWIND_INLINE void add_lows(Eight low, const float* sums, int64_t groups, Eight (&to)[rows]) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    Eight x;
    __builtin_memcpy(&x, sums + r * groups, sizeof x);
    to[r] += low * x;
  }
}

// Sets to[0 ... rows) to the products of a row of blocks with rows of x from `row` on.
template <class Type, class Kind, int rows>
REWIND_INLINE void block_dots(const uint8_t* b, const Left& left, int64_t row, float* to) {
  constexpr bool is_whole = Kind::count != lanes, has_eights = Type::elements == 256;
  const int64_t cols = left.cols, groups = cols / Type::group;
  const float* sums = left.sums + row * groups;
  const float* scales = left.scales_of(row);
  Vec all_parts[rows] = {};
  Eight lows[rows] = {};
  float low_sums[rows] = {};
  int64_t place = row * cols;
  for (int64_t at = 0; at < cols; at += scale_size, ++scales) {
    const int64_t end = least(cols, at + scale_size);
    fetch(b + ahead, scale_size / Type::elements * Type::bytes);
    Vec parts[rows] = {};
    for (int64_t i = at; i < end; i += Type::elements) {
      Type::each_group(
          b,
          [&](int64_t first, float step, float low, const auto& codes)
              __attribute__((always_inline)) {
#pragma GCC unroll 4
                for (int r = 0; r < rows; ++r) {
                  const Vec part =
                      codes_times<Type::group>(codes, Kind(), left, place + first + r * cols);
                  parts[r] = mul_add(all(step), part, parts[r]);
                  if (Type::has_low && !has_eights)
                    low_sums[r] = mul_add(low, sums[r * groups], low_sums[r]);
                }
              },
          [&](int first, Eight low)
              __attribute__((always_inline)) { add_lows(low, sums + first, groups, lows); });
      b += Type::bytes;
      place += Type::elements;
      sums += Type::elements / Type::group;
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
      all_parts[r] =
          is_whole ? mul_add(all(scales[r * divide_up(cols, scale_size)]), parts[r], all_parts[r])
                   : all_parts[r] + parts[r];
  }
  for (int r = 0; r < rows; ++r) {
    float low = low_sums[r];
    for (int k = 0; has_eights && k < 8; ++k) low += lows[r][k];
    to[r] = sum_of_lanes(all_parts[r]) + low;
  }
}

#ifdef REWIND_SHORTS
// The same by bytes of x.
template <class Type, int rows>
REWIND_INLINE void byte_dots(const uint8_t* b, const Left& left, int64_t row, float* to) {
  const int64_t cols = left.cols, groups = cols / Type::group;
  const float* sums = left.sums + row * groups;
  const float* scales = left.scales_of(row);
  const int8_t* x = left.high() + row * cols;
  Vec all_parts[rows] = {};
  Eight lows[rows] = {};
  for (int64_t at = 0; at < cols; at += 256, ++scales) {
    fetch(b + ahead, Type::bytes);
    __m256i high[rows] = {}, low[rows] = {};
    const WholeSteps steps = Type::whole_steps(b);
    Type::each_group(
        b,
        [&](int64_t first, float, float, const auto& codes) __attribute__((always_inline)) {
          if (first % 32 != 0) return;
          const auto q = (__m256i)codes(0, Bytes());
          const __m256i step = steps.of(first / 32);
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) {
            const auto add = [&](__m256i & sum, const int8_t* v) __attribute__((always_inline)) {
              const __m256i products = _mm256_maddubs_epi16(
                  q, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + r * cols + first)));
              sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, step));
            };
            add(high[r], x);
            add(low[r], x + most_left);
          }
        },
        [&](int first, Eight low_ends)
            __attribute__((always_inline)) { add_lows(low_ends, sums + first, groups, lows); });
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Vec part =
          mul_add((Vec)_mm256_cvtepi32_ps(high[r]), all(256), (Vec)_mm256_cvtepi32_ps(low[r]));
      all_parts[r] = mul_add(all(steps.factor * scales[r * (cols / 256)]), part, all_parts[r]);
    }
    b += Type::bytes;
    x += 256;
    sums += 256 / Type::group;
  }
  for (int r = 0; r < rows; ++r) to[r] = sum_of_lanes(all_parts[r] + (Vec)lows[r]);
}
#endif

#ifdef REWIND_SHORTS
constexpr bool has_whole = true;
#else
constexpr bool has_whole = false;
#endif

template <class Type, bool is_whole, int rows>
REWIND_INLINE void dots_of(const uint8_t* b, const Left& left, int64_t row, float* to) {
#ifdef REWIND_SHORTS
  if constexpr (is_whole && Type::elements == 256) return byte_dots<Type, rows>(b, left, row, to);
  if constexpr (is_whole && Type::elements != 256)
    return block_dots<Type, Shorts, rows>(b, left, row, to);
#endif
  if constexpr (!is_whole) block_dots<Type, Ints, rows>(b, left, row, to);
}

// The same with blocks whose codes are no multiples of a step.
template <class Type, int rows>
REWIND_INLINE void value_dots(const Blocks& from, const Left& left, int64_t row, float* to) {
  Vec sums[rows] = {};
  const float* x = left.x + row * left.cols;
  const uint8_t* b = from.at;
  for (int64_t k = 0; k < left.cols / Type::elements; ++k) {
    fetch(b + ahead, Type::bytes);
    Vec parts[rows] = {};
#pragma GCC unroll 16
    for (int64_t i = 0; i < Type::elements; i += lanes) {
      const Vec values = Type::codes(b, i);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r)
        parts[r] = mul_add(values, load(x + i + r * left.cols), parts[r]);
    }
    const Vec scale = all(Type::scale(from.shared, from.number + k));
    for (int r = 0; r < rows; ++r) sums[r] = mul_add(scale, parts[r], sums[r]);
    b += Type::bytes;
    x += Type::elements;
  }
  for (int r = 0; r < rows; ++r) to[r] = sum_of_lanes(sums[r]);
}

template <class Type, bool is_whole>
void multiply_row(const Blocks& from, const Left& left, float* to) {
  int64_t r = 0;
  const auto multiply = [&]<int rows>() {
    if constexpr (has_groups<Type>)
      dots_of<Type, is_whole, rows>(from.at, left, r, to + r);
    else
      value_dots<Type, rows>(from, left, r, to + r);
    r += rows;
  };
  while (r + 4 <= left.rows) multiply.template operator()<4>();
  while (r + 2 <= left.rows) multiply.template operator()<2>();
  if (r < left.rows) multiply.template operator()<1>();
}

// The same one block after the other, as floats: an infinity times a code without its low end would
// have another sign, or be NaN.
template <class Type>
void multiply_floats(const Blocks& from, const Operand& x, int64_t cols, int64_t m, float* to) {
  Block values, buffer;
  for (int64_t r = 0; r < m; ++r) to[r] = 0;
  for (int64_t at = 0; at < cols; at += Type::elements) {
    decode_block<Type>(from, at / Type::elements, values.at);
    for (int64_t r = 0; r < m; ++r)
      to[r] += sum(
          Type::elements, [](auto v, auto w) { return v * w; },
          read(x, r * cols + at, Type::elements, buffer.at), values.at);
  }
}

constexpr int64_t most_rows = 64;  // of a piece

// y [m, rows] = x @ codes^T.
template <class Type>
void multiply_rows(const Matrix<Type>& codes, int64_t rows, const Operand& x, const Left& left,
                   const Operand& y) {
  // Small pieces, so that few rows are shared evenly.
  const int64_t piece = rows < 256 ? 16 : rows < 1024 ? 32 : most_rows, m = left.rows;
  parallel_for(divide_up(rows, piece), rows * codes.row_bytes, [&](int64_t number) {
    Block sums;  // [rows of the piece, m]
    const int64_t first = number * piece, count = least(piece, rows - first);
    for (int64_t i = 0; i < count; ++i) {
      const Blocks from = codes.row(first + i);
      float* const to = sums.at + i * m;
      if (!left.is_finite)
        multiply_floats<Type>(from, x, left.cols, m, to);
      else
        left.x ? multiply_row<Type, false>(from, left, to)
               : multiply_row<Type, has_whole>(from, left, to);
    }
    float line[most_rows];
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t i = 0; i < count; ++i) line[i] = sums.at[i * m + r];
      write(y, r * rows + first, count, line);
    }
  });
}

}  // namespace

bool decode_blocks(const LoopCall& call) {
  const auto& p = params<BlockMatrixParams>(call);
  const Operand y = operand(call, 1);
  const int64_t cols = p.cols, rows = p.rows;
  return with_type(call.constant[0], [&]<class Type>(Type) {
    const Matrix<Type> codes(call, 0, p);
    constexpr int64_t most = block / Type::elements;
    const int64_t across = divide_up(cols, block);
    parallel_for(divide_up(rows, 16), rows * cols * y.width, [&](int64_t piece) {
      Block buffer;
      const int64_t end = least(rows, piece * 16 + 16);
      for (int64_t i = piece * 16 * across; i < end * across; ++i) {
        const int64_t row = i / across, at = i % across * block, count = least(block, cols - at);
        const Blocks from = codes.row(row, at);
        float* const to = place(y, row * cols + at, buffer.at);
        static_assert(most * Type::elements == block);
        for (int64_t k = 0; k * Type::elements < count; ++k)
          decode_block<Type>(from, k, to + k * Type::elements);
        write(y, row * cols + at, count, to);
      }
    });
  });
}

bool multiply_blocks(const LoopCall& call) {
  const auto& p = params<BlockMatrixParams>(call);
  const int64_t cols = p.cols, rows = p.rows, m = p.m;
  if (m > BLOCK_ROWS) return multiply_many_rows(call);
  if (cols > most_left) return false;
  const int64_t most = least(m, most_left / cols);  // rows of x at a time
  return with_type(call.constant[0], [&]<class Type>(Type) {
    const Matrix<Type> codes(call, 1, p);
    for (int64_t done = 0; done < m; done += most) {
      Left left;
      left.cols = cols;
      left.rows = least(most, m - done);
      const Operand x = operand(call, 0).from(done * cols), y = operand(call, 2).from(done * rows);
      if constexpr (has_groups<Type>)
        left.fill<Type>(x);
      else
        left.fill_floats(x);
      multiply_rows<Type>(codes, rows, x, left, y);
    }
  });
}

}  // namespace rw::cpu::REWIND_LEVEL
