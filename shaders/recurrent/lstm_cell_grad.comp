//! buffers: acts:T:read c_prev:T:read c:T:read dy:T:read dh:T:read dc:f32:read_write dgates:T:write
//! types: T = f32 f16
//! params: CellParams
//! local: 64
#include "recurrent/recurrent.glsl"

vec4 get_acts(uint i) { return WHOLE == 1 ? load4_acts(i) : vec4(load_acts(i)); }
vec4 get_c_prev(uint i) { return WHOLE == 1 ? load4_c_prev(i) : vec4(load_c_prev(i)); }
vec4 get_c(uint i) { return WHOLE == 1 ? load4_c(i) : vec4(load_c(i)); }
vec4 get_dy(uint i) { return WHOLE == 1 ? load4_dy(i) : vec4(load_dy(i)); }
vec4 get_dh(uint i) { return WHOLE == 1 ? load4_dh(i) : vec4(load_dh(i)); }
vec4 get_dc(uint i) { return WHOLE == 1 ? load4_dc(i) : vec4(load_dc(i)); }
void set_dc(uint i, vec4 v) {
  if (WHOLE == 1) store4_dc(i, v);
  else store_dc(i, v.x);
}
void set_dgates(uint i, vec4 v) {
  if (WHOLE == 1) store4_dgates(i, v);
  else store_dgates(i, v.x);
}

void main() {
  uint at = state_at();
  if (at >= p.rows * p.hidden) return;
  vec4 i = get_acts(gate_at(0, 4)), f = get_acts(gate_at(1, 4));
  vec4 g = get_acts(gate_at(2, 4)), o = get_acts(gate_at(3, 4));
  vec4 d = get_dy(at) + get_dh(at), t = tanh(get_c(at));
  vec4 dc = get_dc(at) + d * o * (1.0 - t * t);
  set_dgates(gate_at(0, 4), dc * g * i * (1.0 - i));
  set_dgates(gate_at(1, 4), dc * get_c_prev(at) * f * (1.0 - f));
  set_dgates(gate_at(2, 4), dc * i * (1.0 - g * g));
  set_dgates(gate_at(3, 4), d * t * o * (1.0 - o));
  set_dc(at, dc * f);
}
