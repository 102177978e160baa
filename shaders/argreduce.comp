//! buffers: x:T:read y:i32:write
//! types: T = f32 f16 i32
//! params: ArgReduceParams
//! local: 64
#include "numbers.glsl"
layout(constant_id = 0) const uint MIN = 0;  //! 0 1
#define STEP 8  // elements per loop iteration, of which a thread has 65535

#if T_FLOAT
bool not_a_number(float x) { return is_nan(x); }
#else
bool not_a_number(int x) { return false; }
#endif

bool better(T_value x, T_value best) {
  if (not_a_number(best)) return false;
  return not_a_number(x) || (MIN == 1 ? x < best : x > best);
}

void main() {
  uint i = thread_id();
  if (i >= p.outer * p.inner) return;
  uint outer = i / p.inner;
  uint start = outer * p.count * p.inner + (i - outer * p.inner);
  T_value best = load_x(start);
  uint best_at = 0;
  for (uint k = 1; k < p.count; k += STEP) {
    [[unroll]] for (uint u = 0; u < STEP; ++u) {
      T_value x = k + u < p.count ? load_x(start + (k + u) * p.inner) : best;
      if (better(x, best)) {
        best = x;
        best_at = k + u;
      }
    }
  }
  store_y(i, int(best_at));
}
