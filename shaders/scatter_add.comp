//! buffers: dy:T:read index:i32:read next:i32:read first:i32:read y:U:read_write
//! types: T,U = f32,f32 f16,f32 i32,i32
//! params: ScatterAddParams
//! local: 64
#include "flat.glsl"
#define ADD 0
#define REPLACE 1
#define UNIQUE 2
layout(constant_id = 0) const uint MODE = 0;  //! 0 1 2
#define STEP 4  // links per loop iteration, of which a thread has 65535

// y[at...] += the rows of dy from i along the links, at `column`: 8 columns, then one.
void add8(uint i, uint column, uint at) {
  U_vec4 lo, hi, dy_lo, dy_hi;
  load8_y(at, lo, hi);
  int j = int(i);
  while (j >= 0) {
    [[unroll]] for (uint u = 0; u < STEP; ++u) {
      if (j < 0) break;
      load8_dy(j * p.width + column, dy_lo, dy_hi);
      lo += dy_lo;
      hi += dy_hi;
      j = load_next(j);
    }
  }
  store8_y(at, lo, hi);
}

void add1(uint i, uint column, uint at) {
  U_value total = load_y(at);
  int j = int(i);
  while (j >= 0) {
    [[unroll]] for (uint u = 0; u < STEP; ++u) {
      if (j < 0) break;
      total += load_dy(j * p.width + column);
      j = load_next(j);
    }
  }
  store_y(at, total);
}

void put(uint i, uint column, uint at, bool whole) {
  if (whole) {
    U_vec4 lo, hi;
    load8_dy(i * p.width + column, lo, hi);
    store8_y(at, lo, hi);
  } else {
    store_y(at, load_dy(i * p.width + column));
  }
}

void main() {
  uint n = p.n * p.width, begin = thread_id() * REWIND_FLAT;
  if (begin >= n) return;
  bool whole = is_whole(begin, n, p.width | p.offset[0] | p.offset[4]);
  for (uint k = begin; k < flat_end(begin, n); k += whole ? 8 : 1) {
    uint i = k / p.width, column = k - i * p.width, row = uint(load_index(i));
    if (row >= p.rows) continue;
    uint at = row * p.width + column;
    if (MODE == UNIQUE) {
      put(i, column, at, whole);
    } else if (MODE == REPLACE) {
      if (load_next(i) < 0) put(i, column, at, whole);
    } else if (load_first(i) != 0) {
      if (whole) {
        add8(i, column, at);
      } else {
        add1(i, column, at);
      }
    }
  }
}
