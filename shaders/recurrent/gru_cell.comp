//! buffers: gx:T:read gh:T:read bias:f32:read h_prev:T:read h:T:write acts:T:write
//! types: T = f32 f16
//! params: CellParams
//! local: 64
#include "recurrent/recurrent.glsl"

vec4 get_gx(uint i) { return WHOLE == 1 ? load4_gx(i) : vec4(load_gx(i)); }
vec4 get_gh(uint i) { return WHOLE == 1 ? load4_gh(i) : vec4(load_gh(i)); }
vec4 get_bias(uint i) { return WHOLE == 1 ? load4_bias(i) : vec4(load_bias(i)); }
vec4 get_h_prev(uint i) { return WHOLE == 1 ? load4_h_prev(i) : vec4(load_h_prev(i)); }
void set_h(uint i, vec4 v) {
  if (WHOLE == 1) store4_h(i, v);
  else store_h(i, v.x);
}
void set_acts(uint i, vec4 v) {
  if (WHOLE == 1) store4_acts(i, v);
  else store_acts(i, v.x);
}

vec4 inner(uint k) {
  return get_gh(gate_at(k, 3)) + get_bias(k * p.hidden + state_at() % p.hidden);
}

void main() {
  uint at = state_at();
  if (at >= p.rows * p.hidden) return;
  vec4 r = sigmoid(get_gx(gate_at(0, 3)) + inner(0)), z = sigmoid(get_gx(gate_at(1, 3)) + inner(1));
  vec4 q = inner(2), n = tanh(get_gx(gate_at(2, 3)) + r * q);
  set_h(at, (1.0 - z) * n + z * get_h_prev(at));
  set_acts(gate_at(0, 4), r);
  set_acts(gate_at(1, 4), z);
  set_acts(gate_at(2, 4), n);
  set_acts(gate_at(3, 4), q);
}
