//! buffers: x:T:read key:i32:read order:i32:read y:U:read_write open:U:write open_key:i32:write
//! types: T,U = f32,f32 f16,f32 i32,i32
//! params: RowsParams
//! local: 64
// A thread sums 8 columns of a chunk of places, in whole words, or else column by column.
layout(constant_id = 0) const bool IN_ORDER = false;
#define AT_ONCE 4  // rows that are loaded before they are added

struct Sum {
  U_vec4 lo, hi;
};
const Sum zero = Sum(U_vec4(0), U_vec4(0));

uint row_of(uint key) { return key ^ p.flip; }
bool is_inside(uint key) { return row_of(key) < p.rows; }

// Returns the row of x at a place. Places that add nothing read row 0, which all threads share.
uint x_row(uint place, uint key) {
  return is_inside(key) ? IN_ORDER ? place : uint(load_order(place)) : 0;
}

// The places of a chunk, and whether its first run began in an earlier chunk, and its last run continues.
struct Chunk {
  uint number, begin, end;
  uint first_key, last_key;
  bool began, goes_on;
};

Chunk find_chunk(uint number) {
  uint begin = number * SCATTER_CHUNK, end = min(begin + SCATTER_CHUNK, p.n);
  uint first = uint(load_key(begin)), last = uint(load_key(end - 1));
  return Chunk(number, begin, end, first, last, begin > 0 && uint(load_key(begin - 1)) == first,
               end < p.n && uint(load_key(end)) == last);
}

// Returns the place of a run's sum: the element of y or `open`, for this column. `opened`: it is in `open`.
uint target(Chunk c, uint key, bool is_first, bool is_last, uint column, out bool opened) {
  bool head = is_first && c.began, tail = is_last && c.goes_on;
  opened = head || tail;
  return (opened ? 2 * c.number + (head ? 0 : 1) : row_of(key)) * p.width + column;
}

void put8(uint at, bool opened, Sum sum) {
  if (opened) {
    store8_open(at, sum.lo, sum.hi);
  } else {
    U_vec4 lo, hi;
    load8_y(at, lo, hi);
    store8_y(at, lo + sum.lo, hi + sum.hi);
  }
}

void sum8(Chunk c, uint column) {
  uint current = c.first_key;
  bool is_first = true, opened;
  Sum sum = zero;
  for (uint i = c.begin; i < c.end; i += AT_ONCE) {
    uint key[AT_ONCE];
    Sum x[AT_ONCE];
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      uint place = min(i + u, c.end - 1);
      key[u] = uint(load_key(place));
      load8_x(x_row(place, key[u]) * p.width + column, x[u].lo, x[u].hi);
    }
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      if (i + u < c.end && key[u] != current) {
        uint at = target(c, current, is_first, false, column, opened);
        if (is_inside(current)) put8(at, opened, sum);
        is_first = false;
        current = key[u];
        sum = zero;
      }
      if (i + u < c.end) {
        sum.lo += x[u].lo;
        sum.hi += x[u].hi;
      }
    }
  }
  uint at = target(c, current, is_first, true, column, opened);
  if (!is_inside(current)) return;
  put8(at, opened, sum);
  if (is_first && c.began && c.goes_on) put8(at + p.width, true, zero);
}

void sum1(Chunk c, uint column) {
  uint current = c.first_key;
  bool is_first = true, opened;
  U_value sum = U_value(0);
  for (uint i = c.begin; i <= c.end; ++i) {
    uint key = uint(load_key(min(i, c.end - 1)));
    if (i == c.end || key != current) {
      uint at = target(c, current, is_first, i == c.end, column, opened);
      if (is_inside(current) && opened) store_open(at, sum);
      if (is_inside(current) && !opened) store_y(at, load_y(at) + sum);
      if (i == c.end) break;
      is_first = false;
      current = key;
      sum = U_value(0);
    }
    sum += load_x(x_row(i, key) * p.width + column);
  }
  if (is_first && c.began && c.goes_on && is_inside(current))
    store_open((2 * c.number + 1) * p.width + column, U_value(0));
}

void main() {
  uint lanes = (p.width + 7) / 8, number = thread_id() / lanes;
  if (number * SCATTER_CHUNK >= p.n) return;
  uint column = thread_id() % lanes * 8;
  Chunk c = find_chunk(number);
  if ((p.width | p.offset[0] | p.offset[3] | p.offset[4]) % 8 == 0) {
    sum8(c, column);
  } else {
    for (uint k = column; k < min(column + 8, p.width); ++k) sum1(c, k);
  }
  if (column != 0) return;
  store_open_key(2 * c.number, int(c.began ? c.first_key : SCATTER_NO_KEY));
  store_open_key(2 * c.number + 1, int(c.goes_on ? c.last_key : SCATTER_NO_KEY));
}
