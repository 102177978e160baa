//! buffers: table:T:read index:i32:read y:T:write
//! types: T = f32 f16 i32 u8
//! params: RowsParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"

#if T_FLOAT
#define MISSING NAN
#else
#define MISSING -1
#endif

void main() {
  uint n = p.n * p.width, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  if (is_whole(i, n, p.width | p.offset[0] | p.offset[2])) {
    uint at = i / p.width, column = i - at * p.width, row = uint(load_index(at));
    T_vec4 lo = T_vec4(MISSING), hi = lo;
    if (row < p.rows) load8_table(row * p.width + column, lo, hi);
    store8_y(i, lo, hi);
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      uint at = k / p.width, column = k - at * p.width, row = uint(load_index(at));
      T_value value = MISSING;
      if (row < p.rows) value = load_table(row * p.width + column);
      store_y(k, value);
    }
  }
}
