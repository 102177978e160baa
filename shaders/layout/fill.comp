//! buffers: y:T:write
//! types: T = f32 f16 i32 u8
//! params: FillParams
//! local: 64
void main() {
  uint i = thread_id() * REWIND_FLAT;
  if (i >= p.n) return;
#if T_FLOAT
  float v = uintBitsToFloat(p.bits);
#else
  int v = int(p.bits);
#endif
  // The wide store needs a whole, aligned group of 8.
  if (i + REWIND_FLAT <= p.n && p.offset[0] % REWIND_FLAT == 0) {
    store8_y(i, T_vec4(v), T_vec4(v));
  } else {
    for (uint k = i; k < min(i + REWIND_FLAT, p.n); ++k) store_y(k, v);
  }
}
