//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32 i32,i32
//! params: ReduceParams
//! local: 64
#include "reduce_op.glsl"
#include "some.glsl"
layout(constant_id = 1) const uint FLAT = 0;  //! 0 1
#define AT_ONCE 4  // rows that are loaded before they are joined

// Outputs i to i + 7, which lie in one row of `inner`.
void reduce_flat(uint i, bool whole) {
  uint outer = i / p.inner;
  uint at = outer * p.count * p.inner + (i - outer * p.inner);
  T_vec4 total_lo = T_vec4(identity()), total_hi = total_lo;
  for (uint k = 0; k < p.count; k += AT_ONCE) {
    T_vec4 lo[AT_ONCE], hi[AT_ONCE];
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      uint i = at + min(k + u, p.count - 1) * p.inner;
      if (whole) {
        load8_x(i, lo[u], hi[u]);
      } else {
        LOAD_SOME(load_x, i, 8, lo[u], hi[u])
      }
    }
    [[unroll]] for (uint u = 0; u < AT_ONCE; ++u) {
      if (k + u < p.count) {
        total_lo = join(total_lo, lo[u]);
        total_hi = join(total_hi, hi[u]);
      }
    }
  }
  total_lo = scaled(total_lo);
  total_hi = scaled(total_hi);
  if (whole) {
    store8_y(i, total_lo, total_hi);
  } else {
    STORE_SOME(store_y, i, 8, total_lo, total_hi)
  }
}

void reduce_one(uint i) {
  uint outer = i / p.inner;
  uint at = outer * p.count * p.inner + (i - outer * p.inner);
  T_value total = identity();
  for (uint k = 0; k < p.count; ++k, at += p.inner) total = join(total, load_x(at));
  store_y(i, scaled(total));
}

void main() {
  uint i = thread_id() * (FLAT == 1 ? REWIND_FLAT : 1);
  if (i >= p.outer * p.inner) return;
  if (FLAT == 1) {
    reduce_flat(i, (p.offset[0] | p.offset[1]) % 8 == 0);
  } else {
    reduce_one(i);
  }
}
