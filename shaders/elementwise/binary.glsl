// The body of `binary` and `compare`: an includer defines op(T_value, T_value), op(T_vec4, T_vec4) and
// buffers a, b, y.
#include "common/flat.glsl"
#include "common/strided.glsl"
layout(constant_id = 1) const uint MODE = 0;  //! 0 1 2 3
#define STRIDED 0
#define SAME 1
#define PERIODIC 2
#define SCALAR 3

uint b_index(uint i) { return MODE == SAME ? i : MODE == PERIODIC ? i % p.period : 0; }

void binary_flat(uint i) {
  uint offsets = p.offset[0] | p.offset[2] | (MODE == SCALAR ? 0 : p.offset[1]);
  if (is_whole(i, p.n, offsets)) {
    T_vec4 a_lo, a_hi, b_lo, b_hi;
    load8_a(i, a_lo, a_hi);
    if (MODE == SCALAR) {
      b_lo = b_hi = T_vec4(load_b(0));
    } else if (MODE == PERIODIC) {
      uint at = b_index(i);
      LOAD8_PERIODIC(load_b, load8_b, at, p.period, b_lo, b_hi);
    } else {
      load8_b(i, b_lo, b_hi);
    }
    store8_y(i, op(a_lo, b_lo), op(a_hi, b_hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, op(load_a(k), load_b(b_index(k))));
  }
}

void binary_strided(uint i) {
  uint a = 0, b = 0;
  for (uint d = p.rank, rest = i; d-- > 0;) {
    uint coordinate = next_coordinate(rest, d);
    a += coordinate * p.a_stride[d];
    b += coordinate * p.b_stride[d];
  }
  store_y(i, op(load_a(a), load_b(b)));
}

void main() {
  uint i = thread_id() * (MODE == STRIDED ? 1 : REWIND_FLAT);
  if (i >= p.n) return;
  if (MODE == STRIDED) {
    binary_strided(i);
  } else {
    binary_flat(i);
  }
}
