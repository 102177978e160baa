//! buffers: dy:T:read index:i32:read next:i32:read first:i32:read y:f32:read_write
//! types: T = f32 f16
//! params: ScatterAddParams
//! local: 64
#include "flat.glsl"
#define STEP 4  // links per loop iteration, of which a thread has 65535

// y[at...] += the rows of dy from i along the links, at `column`: 8 columns, then one.
void add8(uint i, uint column, uint at) {
  vec4 lo, hi, dy_lo, dy_hi;
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
  float total = load_y(at);
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

void main() {
  uint n = p.n * p.width, begin = thread_id() * REWIND_FLAT;
  if (begin >= n) return;
  bool whole = is_whole(begin, n, p.width | p.offset[0] | p.offset[4]);
  for (uint k = begin; k < flat_end(begin, n); k += whole ? 8 : 1) {
    uint i = k / p.width, column = k - i * p.width, row = uint(load_index(i));
    if (load_first(i) == 0 || row >= p.rows) continue;
    if (whole) {
      add8(i, column, row * p.width + column);
    } else {
      add1(i, column, row * p.width + column);
    }
  }
}
