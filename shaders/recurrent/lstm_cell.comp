//! buffers: gx:T:read gh:T:read bias:f32:read c:f32:read_write h:T:write saved:T:write acts:T:write
//! types: T = f32 f16
//! params: CellParams
//! local: 64
#include "recurrent/recurrent.glsl"

vec4 get_gx(uint i) { return WHOLE == 1 ? load4_gx(i) : vec4(load_gx(i)); }
vec4 get_gh(uint i) { return WHOLE == 1 ? load4_gh(i) : vec4(load_gh(i)); }
vec4 get_bias(uint i) { return WHOLE == 1 ? load4_bias(i) : vec4(load_bias(i)); }
vec4 get_c(uint i) { return WHOLE == 1 ? load4_c(i) : vec4(load_c(i)); }
void set_h(uint i, vec4 v) {
  if (WHOLE == 1) store4_h(i, v);
  else store_h(i, v.x);
}
void set_c(uint i, vec4 v) {
  if (WHOLE == 1) store4_c(i, v);
  else store_c(i, v.x);
}
void set_saved(uint i, vec4 v) {
  if (WHOLE == 1) store4_saved(i, v);
  else store_saved(i, v.x);
}
void set_acts(uint i, vec4 v) {
  if (WHOLE == 1) store4_acts(i, v);
  else store_acts(i, v.x);
}

vec4 gate(uint k) {
  uint i = gate_at(k, 4), j = state_at() % p.hidden;
  return get_gx(i) + get_gh(i) + get_bias(k * p.hidden + j);
}

void main() {
  uint at = state_at();
  if (at >= p.rows * p.hidden) return;
  vec4 i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanh(gate(2)), o = sigmoid(gate(3));
  vec4 c = f * get_c(at) + i * g;
  set_c(at, c);
  set_saved(at, c);
  set_h(at, o * tanh(c));
  set_acts(gate_at(0, 4), i);
  set_acts(gate_at(1, 4), f);
  set_acts(gate_at(2, 4), g);
  set_acts(gate_at(3, 4), o);
}
