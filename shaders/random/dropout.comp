//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: DropoutParams
//! local: 64
//! precise: yes
#include "common/flat.glsl"
#include "random/drop.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    vec4 lo, hi;
    load8_x(i, lo, hi);
    store8_y(i, drop(i, lo), drop(i + 4, hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, drop(k, vec4(load_x(k)))[k % 4]);
  }
}
