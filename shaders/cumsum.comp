//! buffers: x:T:read carry:C:read y:U:write
//! types: T,C,U = f32,f32,f32 f16,f32,f16 f16,f32,f32 i32,i32,i32
//! params: CumsumParams
//! local: 64
layout(constant_id = 0) const uint CARRY = 0;  //! 0 1
layout(constant_id = 1) const uint TOTALS = 0;  //! 0 1

void main() {
  uint i = thread_id();
  if (i >= p.outer * p.chunks * p.inner) return;
  uint inner = i % p.inner, line = i / p.inner, part = line % p.chunks, outer = line / p.chunks;
  uint first = part * p.chunk, last = min(first + p.chunk, p.count);
  C_value total = CARRY == 1 && part > 0 ? load_carry(i - p.inner) : C_value(0);
  for (uint k = first; k < last; ++k) {
    uint at = (outer * p.count + (p.reverse == 1 ? p.count - 1 - k : k)) * p.inner + inner;
    total += load_x(at);
    if (TOTALS == 0) store_y(at, total);
  }
  if (TOTALS == 1) store_y(i, total);
}
