//! buffers: x:T:read carry:C:read y:U:write
//! types: T,C,U = f32,f32,f32 f16,f32,f16 f16,f32,f32 i32,i32,i32
//! params: ScanParams
//! local: 64
//! precise: yes
#include "elementwise/elementwise.glsl"
#define SUM 0
#define PROD 1
#define LOG_SUM_EXP 2
layout(constant_id = 0) const uint OP = 0;  //! 0 1 2
layout(constant_id = 1) const uint CARRY = 0;  //! 0 1
layout(constant_id = 2) const uint TOTALS = 0;  //! 0 1

#if C_FLOAT
float join(float total, float x) {
  return OP == SUM ? total + x : OP == PROD ? total * x : log_add_exp(total, x);
}
float nothing() { return OP == SUM ? 0.0 : OP == PROD ? 1.0 : -INFINITY; }
#else
int join(int total, int x) { return OP == SUM ? total + x : total * x; }
int nothing() { return OP == SUM ? 0 : 1; }
#endif

void main() {
  uint i = thread_id();
  if (i >= p.outer * p.chunks * p.inner) return;
  uint inner = i % p.inner, line = i / p.inner, part = line % p.chunks, outer = line / p.chunks;
  uint first = part * p.chunk, rest = p.count - first, last = first + (rest < p.chunk ? rest : p.chunk);
  C_value total = nothing();
  if (CARRY == 1 && part > 0) total = load_carry(i - p.inner);
  for (uint k = first; k < last; ++k) {
    uint at = (outer * p.count + (p.reverse == 1 ? p.count - 1 - k : k)) * p.inner + inner;
    total = join(total, load_x(at));
    if (TOTALS == 0) store_y(at, total);
  }
  if (TOTALS == 1) store_y(i, total);
}
