//! buffers: sum:T:read_write rest:T:read_write grad:f32:read
//! types: T = f16
//! params: WindowAddParams
//! local: 64
#include "common/flat.glsl"
layout(constant_id = 0) const bool COMPENSATED = false;

// Returns 0, which compilers cannot know: a load from `i + none()` gives the sum as it was rounded. From `i`, Mesa 25.0
// takes the value that was stored, before its rounding.
uint none() { return uint(p.n == ~0u); }

// Returns the part that rounding left out.
vec4 left_out(vec4 before, vec4 rounded, vec4 y) {
  precise vec4 gone = rounded - before;
  precise vec4 rest = gone - y;
  return rest;
}

void add8(uint i) {
  vec4 lo, hi, y_lo, y_hi;
  load8_sum(i, lo, hi);
  load8_grad(i, y_lo, y_hi);
  if (COMPENSATED) {
    vec4 rest_lo, rest_hi;
    load8_rest(i, rest_lo, rest_hi);
    y_lo -= rest_lo;
    y_hi -= rest_hi;
  }
  store8_sum(i, lo + y_lo, hi + y_hi);
  if (!COMPENSATED) return;
  vec4 new_lo, new_hi;
  load8_sum(i + none(), new_lo, new_hi);
  store8_rest(i, left_out(lo, new_lo, y_lo), left_out(hi, new_hi, y_hi));
}

void add1(uint i) {
  float before = load_sum(i), y = load_grad(i);
  if (COMPENSATED) y -= load_rest(i);
  store_sum(i, before + y);
  if (COMPENSATED) store_rest(i, left_out(vec4(before), vec4(load_sum(i + none())), vec4(y)).x);
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2])) {
    add8(i);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) add1(k);
  }
}
