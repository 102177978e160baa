//! buffers: x:T:read s:T:read t:T:read y:T:write
//! types: T = f32 f16
//! params: ChainParams
//! local: 64
//! precise: yes
//! optimize: no
//! reference: none
#include "elementwise/chain.glsl"

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  if (is_whole(i, p.n, p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3])) {
    vec4 lo, hi;
    load8_x(i, lo, hi);
    chain8(i, lo, hi);
    store8_y(i, lo, hi);
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, chain(k, load_x(k)));
  }
}
