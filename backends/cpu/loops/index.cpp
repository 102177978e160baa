// Operations on rows by their numbers: gathering, writing, and adding in the order of a stable
// sort.
#include "backends/cpu/loops/halves.h"
#include "backends/cpu/loops/level.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Returns the rows of a piece of work that moves rows: enough to be worth sharing.
int64_t rows_of_piece(int64_t row_bytes) {
  return 1 + (16 << 10) / (row_bytes + 1);
}

// Fills elements that stand for a row outside the table.
void fill_invalid(const Operand& y, int64_t count) {
  const uint32_t bits = y.dtype == DType::f32    ? 0x7fc00000u
                        : y.dtype == DType::f16  ? 0x7e00u
                        : y.dtype == DType::bf16 ? 0x7fc0u
                                                 : UINT32_MAX;
  for (int64_t i = 0; i < count; ++i)
    __builtin_memcpy(y.as<std::byte>(i * y.width), &bits, static_cast<size_t>(y.width));
}

}  // namespace

bool gather(const LoopCall& call) {
  const auto& p = params<RowsParams>(call);
  const Operand table = operand(call, 0), y = operand(call, 2);
  const int32_t* index = operand(call, 1).as<int32_t>();
  const int64_t n = p.n, width = p.width, bytes = width * y.width, piece = rows_of_piece(bytes);
  parallel_for(divide_up(n, piece), 2 * n * bytes, [&](int64_t k) {
    for (int64_t i = k * piece; i < least(n, (k + 1) * piece); ++i) {
      const int64_t row = index[i];
      if (row >= 0 && row < p.rows)
        __builtin_memcpy(y.from(i * width).data, table.from(row * width).data,
                         static_cast<size_t>(bytes));
      else
        fill_invalid(y.from(i * width), width);
    }
  });
  return true;
}

bool flat_index(const LoopCall& call) {
  const auto& p = params<FlatIndexParams>(call);
  if (p.n == 0) return true;
  const bool is_shared = call.constant[0] == 1;
  const int32_t* index = operand(call, 0).as<int32_t>();
  int32_t* y = operand(call, 1).as<int32_t>();
  const int64_t inner = p.inner, count = p.count, rows = p.rows, lines = divide_up(p.n, inner);
  const int64_t piece = rows_of_piece(4 * inner);
  parallel_for(divide_up(lines, piece), 8 * int64_t{p.n}, [&](int64_t part) {
    for (int64_t line = part * piece; line < least(lines, (part + 1) * piece); ++line) {
      const int64_t k = line % count, o = line / count;
      for (int64_t i = 0, at = line * inner; i < inner; ++i, ++at) {
        const int64_t row = index[is_shared ? k : at];
        y[at] = row >= 0 && row < rows ? static_cast<int32_t>((o * rows + row) * inner + i) : -1;
      }
    }
  });
  return true;
}

namespace {

constexpr int64_t sort_block = 32;

// Maps values to unsigned numbers in the same order.
void sort_keys(const Operand& x, int64_t at, int64_t count, bool descending, uint32_t* keys) {
  const uint32_t flip = descending ? UINT32_MAX : 0;
  if (is_real(x.dtype)) {
    float buffer[sort_block];
    const float* const values = read(x, at, count, buffer);
    each(count, [=](int64_t i) {
      const float value = values[i];
      const uint32_t bits = value == 0.0f ? 0 : bits_of(value);
      const uint32_t key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
      keys[i] = (value != value ? UINT32_MAX : key) ^ flip;
    });
    return;
  }
  for (int64_t i = at; i < at + count; ++i) {
    const int32_t value = x.width == 4 ? *x.as<int32_t>(i) : *x.as<uint8_t>(i);
    *keys++ = static_cast<uint32_t>(value) ^ 0x80000000u ^ flip;
  }
}

}  // namespace

bool sort_blocks(const LoopCall& call) {
  const auto& p = params<SortParams>(call);
  if (p.n == 0) return true;
  const Operand x = operand(call, 0);
  uint32_t *key = operand(call, 1).as<uint32_t>(), *order = operand(call, 2).as<uint32_t>();
  const int64_t count = p.count, blocks = divide_up(count, sort_block), lines = p.n / count;
  parallel_for(lines * blocks, 64 * int64_t{p.n}, [&](int64_t i) {
    const int64_t first = i % blocks * sort_block, at = i / blocks * count + first;
    const int64_t places = least(sort_block, count - first);
    uint32_t keys[sort_block];
    sort_keys(x, at, places, p.descending == 1, keys);
    int64_t values[sort_block];  // keys with their positions, so that no two are equal
    for (int64_t k = 0; k < sort_block; ++k)
      values[k] = k < places
                      ? static_cast<int64_t>(uint64_t{keys[k] ^ 0x80000000u} << 32) + (first + k)
                      : INT64_MAX;
    // A place is the number of smaller values, which takes no branch.
    for (int64_t k = 0; k < places; ++k) {
      const int64_t own = values[k];
      int64_t place = 0;
      for (int64_t j = 0; j < sort_block; ++j) place += values[j] < own;
      key[at + place] = keys[k];
      order[at + place] = static_cast<uint32_t>(first + k);
    }
  });
  return true;
}

namespace {

// Returns how many of the first `to` elements of two merged runs come from the first run, which
// precedes among equals.
int64_t from_first(const uint32_t* a, int64_t a_size, const uint32_t* b, int64_t b_size,
                   int64_t to) {
  int64_t low = to > b_size ? to - b_size : 0, high = least(to, a_size);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (a[middle] <= b[to - middle - 1])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

bool sort_merge(const LoopCall& call) {
  const auto& p = params<SortParams>(call);
  if (p.n == 0) return true;
  const uint32_t *key = operand(call, 0).as<uint32_t>(), *order = operand(call, 1).as<uint32_t>();
  uint32_t *to_key = operand(call, 2).as<uint32_t>(), *to_order = operand(call, 3).as<uint32_t>();
  const int64_t count = p.count, run = p.run, pairs = divide_up(count, 2 * run),
                lines = p.n / count;
  const int64_t piece = least(2 * run, 8192), pieces = divide_up(2 * run, piece);
  parallel_for(lines * pairs * pieces, 32 * int64_t{p.n}, [&](int64_t i) {
    const int64_t line = i / pieces / pairs * count, first = i / pieces % pairs * 2 * run;
    const int64_t middle = least(first + run, count), end = least(first + 2 * run, count);
    const int64_t begin = i % pieces * piece;
    if (first + begin >= end) return;
    const uint32_t *a = key + line + first, *b = key + line + middle;
    const int64_t a_size = middle - first, b_size = end - middle;
    int64_t from_a = from_first(a, a_size, b, b_size, begin), from_b = begin - from_a;
    const int64_t last = least(begin + piece, a_size + b_size);
    const uint32_t *a_order = order + line + first, *b_order = order + line + middle;
    uint32_t *keys = to_key + line + first, *orders = to_order + line + first;
    int64_t to = begin;
    // The run that comes next cannot be foreseen, so no branch depends on it.
    while (to < last && from_a < a_size && from_b < b_size) {
      const uint32_t one = a[from_a], other = b[from_b];
      const uint32_t one_order = a_order[from_a], other_order = b_order[from_b];
      const bool takes_a = one <= other;
      keys[to] = takes_a ? one : other;
      orders[to++] = takes_a ? one_order : other_order;
      from_a += takes_a;
      from_b += !takes_a;
    }
    const bool ends_a = from_b == b_size;  // the rest of one run
    const int64_t from = ends_a ? from_a : from_b, bytes = (last - to) * int64_t{sizeof(uint32_t)};
    if (bytes == 0) return;
    __builtin_memcpy(keys + to, (ends_a ? a : b) + from, static_cast<size_t>(bytes));
    __builtin_memcpy(orders + to, (ends_a ? a_order : b_order) + from, static_cast<size_t>(bytes));
  });
  return true;
}

bool sorted_lasts(const LoopCall& call) {
  const auto& p = params<SortParams>(call);
  const int32_t *key = operand(call, 0).as<int32_t>(), *order = operand(call, 1).as<int32_t>();
  int32_t* last = operand(call, 2).as<int32_t>();
  for (int64_t i = 0; i < p.n; ++i) last[order[i]] = i + 1 == p.n || key[i + 1] != key[i] ? 1 : 0;
  return true;
}

namespace {

const float* values(const Operand& x, int64_t at, int64_t count, float* buffer) {
  return read(x, at, count, buffer);
}
const int32_t* values(const Operand& x, int64_t at, int64_t, int32_t*) {
  return x.as<int32_t>(at);
}

// One call of scatter_add. T is the type of the sums, float or int32_t.
template <class T>
struct ScatterAdd {
  RowsParams p;
  bool in_order;
  Operand x;
  const int32_t *key, *order;
  T *y, *open;

  // Sets to[c] to the sum of places [first, end), for columns from `col` on, or adds it to the
  // value there.
  void sum(int64_t first, int64_t end, int64_t col, int64_t count, bool adds, T* to) const {
    if (!adds)
      for (int64_t c = 0; c < count; ++c) to[c] = 0;
    Block in, sums;
    T* total = as<T>(sums);
    for (int64_t i = first; i < end; ++i) {
      const int64_t at = (in_order ? i : order[i]) * int64_t{p.width} + col;
      const T* from = values(x, at, count, as<T>(in));
      if (i == first)
        each(count, [=](int64_t c) { total[c] = from[c]; });
      else
        each(count, [=](int64_t c) { total[c] += from[c]; });
    }
    each(count, [=](int64_t c) { to[c] += total[c]; });
  }

  // Sums the places of one chunk, and sets the keys of its two rows of `open`.
  void chunk(int64_t begin, int32_t (&open_key)[2]) const {
    const int64_t n = p.n, end = least(begin + SCATTER_CHUNK, n), width = p.width;
    T* const rows[] = {open + begin / SCATTER_CHUNK * 2 * width,
                       open + (begin / SCATTER_CHUNK * 2 + 1) * width};
    open_key[0] = open_key[1] = static_cast<int32_t>(SCATTER_NO_KEY);
    for (int64_t first = begin, next; first < end; first = next) {  // visits the runs of equal keys
      for (next = first + 1; next < end && key[next] == key[first];) ++next;
      const bool began = first == begin && first > 0 && key[first - 1] == key[first];
      const bool goes_on = next == end && next < n && key[next] == key[first];
      if (began) open_key[0] = key[first];
      if (goes_on) open_key[1] = key[first];
      const uint32_t row = static_cast<uint32_t>(key[first]) ^ p.flip;
      if (row >= p.rows) continue;
      for (int64_t col = 0; col < width; col += block) {
        const int64_t count = least(block, width - col);
        T* to = began ? rows[0] : goes_on ? rows[1] : y + row * width;
        sum(first, next, col, count, !began && !goes_on, to + col);
        if (began && goes_on)
          for (int64_t c = 0; c < count; ++c) rows[1][col + c] = 0;
      }
    }
  }
};

template <class T>
void scatter_add_of(const LoopCall& call) {
  const auto& p = params<RowsParams>(call);
  const ScatterAdd<T> s{p,
                        call.constant[0] == 1,
                        operand(call, 0),
                        operand(call, 1).as<int32_t>(),
                        operand(call, 2).as<int32_t>(),
                        operand(call, 3).as<T>(),
                        operand(call, 4).as<T>()};
  int32_t* open_key = operand(call, 5).as<int32_t>();
  parallel_for(divide_up(p.n, SCATTER_CHUNK), 8 * int64_t{p.n} * p.width, [&](int64_t i) {
    int32_t keys[2];
    s.chunk(i * SCATTER_CHUNK, keys);
    open_key[2 * i] = keys[0];
    open_key[2 * i + 1] = keys[1];
  });
}

}  // namespace

bool scatter_add(const LoopCall& call) {
  if (call.dtype[3] == DType::i32)
    scatter_add_of<int32_t>(call);
  else
    scatter_add_of<float>(call);
  return true;
}

bool scatter_put(const LoopCall& call) {
  const auto& p = params<RowsParams>(call);
  const bool is_unique = call.constant[0] == 1;
  const Operand dy = operand(call, 0), y = operand(call, 3);
  const int32_t *index = operand(call, 1).as<int32_t>(), *last = operand(call, 2).as<int32_t>();
  const int64_t n = p.n, width = p.width, piece = rows_of_piece(width * y.width);
  parallel_for(divide_up(n, piece), 2 * n * width * y.width, [&](int64_t part) {
    for (int64_t i = part * piece; i < least(n, (part + 1) * piece); ++i) {
      const int64_t row = index[i];
      if (row < 0 || row >= p.rows || (!is_unique && last[i] == 0)) continue;
      if (y.dtype == dy.dtype) {
        __builtin_memcpy(y.from(row * width).data, dy.from(i * width).data,
                         static_cast<size_t>(width * y.width));
        continue;
      }
      for (int64_t col = 0; col < width; col += block) {
        Block in;
        const int64_t count = least(block, width - col);
        write(y, row * width + col, count, read(dy, i * width + col, count, in.at));
      }
    }
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
