//! buffers: y:T:write codes:u8:read steps:f32:read
//! types: T = f32 f16
//! params: QuantizeBlocksParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"

float decode(int code, float step) {
  int k = code - QUANTIZE_ZERO;
  if (is_nan(step)) return step;
  return k == 0 ? 0.0 : (float(k) - (k > 0 ? 0.5 : -0.5)) * step;
}

void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
  float step = load_steps(i / QUANTIZE_BLOCK);
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    ivec4 first, last;
    load8_codes(i, first, last);
    store8_y(i, vec4(decode(first.x, step), decode(first.y, step), decode(first.z, step), decode(first.w, step)),
             vec4(decode(last.x, step), decode(last.y, step), decode(last.z, step), decode(last.w, step)));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, decode(load_codes(k), step));
  }
}
