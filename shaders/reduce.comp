//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32 i32,i32
//! params: ReduceParams
//! local: 64
//! texels: yes
#include "reduce_op.glsl"
#include "some.glsl"
layout(constant_id = 1) const uint FLAT = 0;  //! 0 1

uint first_of(uint i) {
  uint outer = i / p.inner;
  return outer * p.count * p.inner + (i - outer * p.inner);
}

// Outputs i to i + 7, which lie in one row of `inner`, in whole words.
void reduce_words(uint i) {
  uint at = first_of(i);
  T_vec4 total_lo = T_vec4(identity()), total_hi = total_lo;
  for (uint k = 0; k < p.count; ++k, at += p.inner) {
    T_vec4 lo, hi;
    load8_x(at, lo, hi);
    total_lo = join(total_lo, lo);
    total_hi = join(total_hi, hi);
  }
  store8_y(i, scaled(total_lo), scaled(total_hi));
}

// The same, one by one.
void reduce_some(uint i) {
  uint at = first_of(i);
  T_vec4 total_lo = T_vec4(identity()), total_hi = total_lo;
  for (uint k = 0; k < p.count; ++k, at += p.inner) {
    T_vec4 lo, hi;
    LOAD_SOME(load_x, at, 8, lo, hi)
    total_lo = join(total_lo, lo);
    total_hi = join(total_hi, hi);
  }
  total_lo = scaled(total_lo);
  total_hi = scaled(total_hi);
  STORE_SOME(store_y, i, 8, total_lo, total_hi)
}

void reduce_one(uint i) {
  uint at = first_of(i);
  T_value total = identity();
  for (uint k = 0; k < p.count; ++k, at += p.inner) total = join(total, load_x(at));
  store_y(i, scaled(total));
}

void main() {
  uint i = thread_id() * (FLAT == 1 ? REWIND_FLAT : 1);
  if (i >= p.outer * p.inner) return;
  if (FLAT == 0) {
    reduce_one(i);
  } else if ((p.offset[0] | p.offset[1]) % 8 == 0) {
    reduce_words(i);
  } else {
    reduce_some(i);
  }
}
