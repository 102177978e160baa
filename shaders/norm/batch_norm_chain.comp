//! buffers: x:T:read mean:f32:read var:f32:read weight:f32:read bias:f32:read s:T:read t:T:read y:T:write
//! types: T = f32 f16
//! params: BatchNormChainParams
//! local: 64
//! precise: yes
//! optimize: no
//! reference: none
#include "elementwise/chain.glsl"

float after(uint k, float v) { return chain(k, stored(vec4(v)).x); }
void after8(uint i, inout vec4 lo, inout vec4 hi) {
  lo = stored(lo);
  hi = stored(hi);
  chain8(i, lo, hi);
}
#define AFTER after
#define AFTER8 after8
#include "norm/batch_norm_apply.glsl"
