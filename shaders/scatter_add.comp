//! buffers: x:T:read key:i32:read order:i32:read y:U:read_write open:U:write open_key:i32:write
//! types: T,U = f32,f32 f16,f32 i32,i32
//! params: ScatterAddParams
//! local: 64
// A thread sums 8 columns of a chunk of places.
#include "some.glsl"
layout(constant_id = 0) const bool IN_ORDER = false;
#define AT_ONCE 4  // rows that are loaded before they are added

struct Sum {
  U_vec4 lo, hi;
};

uint row_of(uint key) { return key ^ p.flip; }

Sum load_row(uint row, uint column, uint count, bool whole) {
  Sum x = Sum(U_vec4(0), U_vec4(0));
  uint at = row * p.width + column;
  if (whole) {
    load8_x(at, x.lo, x.hi);
  } else {
    LOAD_SOME(load_x, at, count, x.lo, x.hi)
  }
  return x;
}

// What is left of `key` at a place of the next level.
void put_open(uint place, uint key, uint column, uint count, bool whole, Sum sum) {
  uint at = place * p.width + column;
  if (row_of(key) >= p.rows) return;
  if (whole) {
    store8_open(at, sum.lo, sum.hi);
  } else {
    STORE_SOME(store_open, at, count, sum.lo, sum.hi)
  }
}

void add_to_y(uint row, uint column, uint count, bool whole, Sum sum) {
  uint at = row * p.width + column;
  if (row >= p.rows) return;
  Sum y;
  if (whole) {
    load8_y(at, y.lo, y.hi);
    store8_y(at, y.lo + sum.lo, y.hi + sum.hi);
  } else {
    LOAD_SOME(load_y, at, count, y.lo, y.hi)
    y.lo += sum.lo;
    y.hi += sum.hi;
    STORE_SOME(store_y, at, count, y.lo, y.hi)
  }
}

void main() {
  uint lanes = (p.width + 7) / 8, chunk = thread_id() / lanes;
  uint begin = chunk * SCATTER_CHUNK, end = min(begin + SCATTER_CHUNK, p.n);
  if (begin >= p.n) return;
  uint column = thread_id() % lanes * 8, count = min(p.width - column, 8);
  bool whole = (p.width | p.offset[0] | p.offset[3] | p.offset[4]) % 8 == 0;

  uint current = uint(load_key(begin)), last = uint(load_key(end - 1));
  uint first = current;
  bool began = begin > 0 && uint(load_key(begin - 1)) == first;  // in an earlier chunk
  bool goes_on = end < p.n && uint(load_key(end)) == last;
  bool is_first = true;
  Sum sum = Sum(U_vec4(0), U_vec4(0));
  for (uint i = begin; i < end; i += AT_ONCE) {
    uint key[AT_ONCE];
    Sum x[AT_ONCE];
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      uint place = min(i + u, end - 1);
      key[u] = uint(load_key(place));
      // What adds nothing is read from row 0, which all threads share.
      uint row = row_of(key[u]) >= p.rows ? 0 : IN_ORDER ? place : uint(load_order(place));
      x[u] = load_row(row, column, count, whole);
    }
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      if (i + u < end && key[u] != current) {
        if (is_first && began) {
          put_open(2 * chunk, current, column, count, whole, sum);
        } else {
          add_to_y(row_of(current), column, count, whole, sum);
        }
        is_first = false;
        current = key[u];
        sum = Sum(U_vec4(0), U_vec4(0));
      }
      if (i + u < end) {
        sum.lo += x[u].lo;
        sum.hi += x[u].hi;
      }
    }
  }

  if (is_first && began) {
    put_open(2 * chunk, current, column, count, whole, sum);
    if (goes_on) put_open(2 * chunk + 1, current, column, count, whole, Sum(U_vec4(0), U_vec4(0)));
  } else if (goes_on) {
    put_open(2 * chunk + 1, current, column, count, whole, sum);
  } else {
    add_to_y(row_of(current), column, count, whole, sum);
  }
  if (column != 0) return;
  store_open_key(2 * chunk, int(began ? first : SCATTER_NO_KEY));
  store_open_key(2 * chunk + 1, int(goes_on ? last : SCATTER_NO_KEY));
}
