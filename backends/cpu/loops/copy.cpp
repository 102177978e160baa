// Copies between views, of one dtype or with a cast.
#include "backends/cpu/loops/views.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Two views of one shape, with as few dimensions as both allow.
struct Copy {
  Operand x, y;
  int rank = 0;
  int64_t n, shape[REWIND_MAX_DIMS], from[REWIND_MAX_DIMS], to[REWIND_MAX_DIMS];

  Copy(const LoopCall& call, const CopyParams& p)
      : x(operand(call, 0)), y(result(call, 1, p.n)), n(p.n) {
    for (uint32_t d = 0; d < p.rank; ++d) {
      if (p.shape[d] == 1) continue;
      const int last = rank - 1;
      const bool joins = rank > 0 && from[last] == int64_t{p.x_stride[d]} * p.shape[d] &&
                         to[last] == int64_t{p.y_stride[d]} * p.shape[d];
      const int at = joins ? last : rank++;
      shape[at] = joins ? shape[at] * p.shape[d] : p.shape[d];
      from[at] = p.x_stride[d];
      to[at] = p.y_stride[d];
    }
    if (rank > 0) return;
    rank = 1;
    shape[0] = from[0] = to[0] = 1;
  }

  bool is_dense() const { return rank == 1 && from[0] == 1 && to[0] == 1; }
  // Returns the dimension in which x is contiguous if y is contiguous in the last one, or the other
  // way round; -1 if there is none.
  int turned() const {
    const int last = rank - 1;
    for (int d = 0; d < last; ++d)
      if ((from[d] == 1 && to[last] == 1 && from[last] != 1) ||
          (to[d] == 1 && from[last] == 1 && to[last] != 1))
        return d;
    return -1;
  }
};

constexpr int64_t side = 32;  // of a tile that is transposed

// Computes to[c][r] = x[r * step + c].
template <class T>
void turn_tile(const T* x, int64_t step, int64_t rows, int64_t cols, T (&to)[side][side]) {
  int64_t whole_rows = 0, whole_cols = 0;
  if constexpr (sizeof(T) == 4) {  // takes four by four in registers
    typedef uint32_t Four __attribute__((vector_size(16), aligned(4), may_alias));
    const auto four = [](auto* at) -> Four& {
      return *reinterpret_cast<Four*>(const_cast<uint32_t*>(at));
    };
    whole_rows = rows / 4 * 4, whole_cols = cols / 4 * 4;
    for (int64_t r = 0; r < whole_rows; r += 4)
      for (int64_t c = 0; c < whole_cols; c += 4) {
        const T* from = x + r * step + c;
        const Four k = four(from), l = four(from + step), m = four(from + 2 * step),
                   n = four(from + 3 * step);
        const Four kl_low = __builtin_shufflevector(k, l, 0, 4, 1, 5),
                   kl_high = __builtin_shufflevector(k, l, 2, 6, 3, 7),
                   mn_low = __builtin_shufflevector(m, n, 0, 4, 1, 5),
                   mn_high = __builtin_shufflevector(m, n, 2, 6, 3, 7);
        four(&to[c][r]) = __builtin_shufflevector(kl_low, mn_low, 0, 1, 4, 5);
        four(&to[c + 1][r]) = __builtin_shufflevector(kl_low, mn_low, 2, 3, 6, 7);
        four(&to[c + 2][r]) = __builtin_shufflevector(kl_high, mn_high, 0, 1, 4, 5);
        four(&to[c + 3][r]) = __builtin_shufflevector(kl_high, mn_high, 2, 3, 6, 7);
      }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c) to[c][r] = x[r * step + c];
}

// Transposes the matrix of dimension d and the last one, in tiles, for all other indices in order.
// Lines of x lie along one of the two, those of y along the other.
template <class T>
void turn(const Copy& c, int d) {
  const int last = c.rank - 1, along = c.from[d] == 1 ? d : last, across = along == d ? last : d;
  const int64_t lines = c.shape[across], length = c.shape[along], down = divide_up(lines, side);
  const int64_t matrices = c.n / (lines * length);
  parallel_for(matrices * down, 2 * c.n * c.x.width, [&](int64_t i) {
    int64_t rest = i / down, x_at = 0, y_at = 0;
    for (int k = last - 1; k >= 0; --k) {
      if (k == d) continue;
      x_at += rest % c.shape[k] * c.from[k];
      y_at += rest % c.shape[k] * c.to[k];
      rest /= c.shape[k];
    }
    const int64_t line = i % down * side, height = least(side, lines - line);
    for (int64_t at = 0; at < length; at += side) {
      const int64_t width = least(side, length - at);
      alignas(64) T tile[side][side];
      turn_tile(c.x.as<T>(x_at + line * c.from[across] + at), c.from[across], height, width, tile);
      T* y = c.y.as<T>(y_at + line + at * c.to[along]);
      for (int64_t k = 0; k < width; ++k) {
        const T* from = tile[k];
        T* to = y + k * c.to[along];
        each(height, [=](int64_t r) { to[r] = from[r]; });
      }
    }
  });
}

// Copies a short run of whole registers without a call of memcpy, which would take as long as the
// copy.
inline void copy_run(const void* from, void* to, int64_t bytes) {
  constexpr int64_t width = sizeof(Vec), most = 8 * width;
  if (bytes > most || bytes % width != 0) {
    __builtin_memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  const float* x = static_cast<const float*>(from);
  float* y = static_cast<float*>(to);
#pragma GCC unroll 8
  for (int64_t i = 0; i < most / width; ++i)
    if (i * width < bytes) store(y + i * lanes, load(x + i * lanes));
}

// Copies runs along the last dimension.
template <class T>
void move_runs(const Copy& c) {
  const int last = c.rank - 1;
  const int64_t x_step = c.from[last], y_step = c.to[last];
  each_block(c.n, 2 * c.x.width, [&](int64_t at, int64_t count) {
    int64_t place[REWIND_MAX_DIMS], rest = at;
    const T* x = c.x.as<T>();
    T* y = c.y.as<T>();
    for (int d = last; d >= 0; --d) {
      place[d] = rest % c.shape[d];
      rest /= c.shape[d];
      x += place[d] * c.from[d];
      y += place[d] * c.to[d];
    }
    while (count > 0) {
      // Whole runs of the dimension before the last one have the same steps.
      const int64_t length = least(count, c.shape[last] - place[last]);
      const bool is_whole = last > 0 && length == c.shape[last];
      const int outer = is_whole ? last - 1 : last;
      const int64_t runs = is_whole ? least(count / length, c.shape[outer] - place[outer]) : 1;
      const int64_t x_next = c.from[outer], y_next = c.to[outer];
      for (int64_t r = 0; r < runs; ++r) {
        const T* from = x + r * x_next;
        T* to = y + r * y_next;
        if (x_step == 1 && y_step == 1)
          copy_run(from, to, length * int64_t{sizeof(T)});
        else
          each(length, [=](int64_t i) { to[i * y_step] = from[i * x_step]; });
      }
      const int64_t moved = is_whole ? runs : length;
      count -= runs * length;
      place[outer] += moved;
      x += moved * x_next;
      y += moved * y_next;
      for (int d = outer; d > 0 && place[d] == c.shape[d]; --d) {
        x += c.from[d - 1] - place[d] * c.from[d];
        y += c.to[d - 1] - place[d] * c.to[d];
        place[d] = 0;
        ++place[d - 1];
      }
    }
  });
}

template <class T>
void move(const Copy& c) {
  if (c.is_dense())
    return each_block(c.n, 2 * c.x.width, [&](int64_t at, int64_t count) {
      if (c.y.streams)
        write(c.y, at, count, c.x.as<float>(at));
      else
        __builtin_memcpy(c.y.as<T>(at), c.x.as<T>(at), static_cast<size_t>(count) * sizeof(T));
    });
  if (const int d = c.turned(); d >= 0) return turn<T>(c, d);
  move_runs<T>(c);
}

// Stores a block as elements at[0], at[1], ... of y.
template <class T>
inline void scatter(const View& y, int64_t at, int64_t count, const void* block) {
  const T* from = static_cast<const T*>(block);
  const int64_t step = y.stride[y.rank - 1];
  each_run(y, at, count, [&](int64_t done, int64_t place, int64_t length) {
    for (int64_t i = 0; i < length; ++i) y.x.as<T>(place)[i * step] = from[done + i];
  });
}

// Converts a block to the dtype of y. All but floats go by way of f32; i32 to u8 and back keeps the
// low bits.
void cast_block(const View& x, int64_t at, int64_t count, const Operand& y) {
  Block in;
  if (x.x.dtype == DType::i32 && y.dtype == DType::u8) {
    const int32_t* from = gather(x, at, count, as<int32_t>(in));
    for (int64_t i = 0; i < count; ++i) *y.as<uint8_t>(i) = static_cast<uint8_t>(from[i]);
  } else {
    write(y, 0, count, read(x, at, count, place(y, 0, in.at)));
  }
}

void cast(const CopyParams& p, const Operand& x, const Operand& y) {
  const View from = view(x, p.rank, p.shape, p.x_stride), to = view(y, p.rank, p.shape, p.y_stride);
  each_block(p.n, x.width + y.width, [&](int64_t at, int64_t count) {
    if (to.is_dense()) return cast_block(from, at, count, y.from(at));
    Block made;
    cast_block(from, at, count, {reinterpret_cast<std::byte*>(made.at), y.dtype});
    if (y.width == 4)
      scatter<uint32_t>(to, at, count, made.at);
    else if (y.width == 2)
      scatter<uint16_t>(to, at, count, made.at);
    else
      scatter<uint8_t>(to, at, count, made.at);
  });
}

}  // namespace

bool copy(const LoopCall& call) {
  const auto& p = params<CopyParams>(call);
  const Copy c(call, p);
  if (c.n == 0) return true;
  if (c.x.dtype != c.y.dtype)
    cast(p, c.x, c.y);
  else if (c.x.width == 4)
    move<uint32_t>(c);
  else if (c.x.width == 2)
    move<uint16_t>(c);
  else
    move<uint8_t>(c);
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
