//! buffers: acts:T:read h_prev:T:read dy:T:read dh:T:read carry:f32:read_write dgx:T:write dgh:T:write
//! types: T = f32 f16
//! params: CellParams
//! local: 64
#include "recurrent/recurrent.glsl"

vec4 get_acts(uint i) { return WHOLE == 1 ? load4_acts(i) : vec4(load_acts(i)); }
vec4 get_h_prev(uint i) { return WHOLE == 1 ? load4_h_prev(i) : vec4(load_h_prev(i)); }
vec4 get_dy(uint i) { return WHOLE == 1 ? load4_dy(i) : vec4(load_dy(i)); }
vec4 get_dh(uint i) { return WHOLE == 1 ? load4_dh(i) : vec4(load_dh(i)); }
vec4 get_carry(uint i) { return WHOLE == 1 ? load4_carry(i) : vec4(load_carry(i)); }
void set_carry(uint i, vec4 v) {
  if (WHOLE == 1) store4_carry(i, v);
  else store_carry(i, v.x);
}
void set_dgx(uint i, vec4 v) {
  if (WHOLE == 1) store4_dgx(i, v);
  else store_dgx(i, v.x);
}
void set_dgh(uint i, vec4 v) {
  if (WHOLE == 1) store4_dgh(i, v);
  else store_dgh(i, v.x);
}

// The first two gates have the same gradient on both sides.
void set_both(uint k, vec4 v) {
  set_dgx(gate_at(k, 3), v);
  set_dgh(gate_at(k, 3), v);
}

void main() {
  uint at = state_at();
  if (at >= p.rows * p.hidden) return;
  vec4 r = get_acts(gate_at(0, 4)), z = get_acts(gate_at(1, 4));
  vec4 n = get_acts(gate_at(2, 4)), q = get_acts(gate_at(3, 4));
  vec4 d = get_dy(at) + get_dh(at) + get_carry(at);
  vec4 dn = d * (1.0 - z) * (1.0 - n * n);
  set_both(0, dn * q * r * (1.0 - r));
  set_both(1, d * (get_h_prev(at) - n) * z * (1.0 - z));
  set_dgx(gate_at(2, 3), dn);
  set_dgh(gate_at(2, 3), dn * r);
  set_carry(at, d * z);
}
