//! buffers: sum:f32:read_write grad:f32:read table:i32:read state:f32:read
//! params: WindowFoldParams
//! local: 64
#include "common/chunks.glsl"
#include "common/flat.glsl"

void main() {
  uint t = thread_id(), row = t >> p.shift;
  if (row >= p.rows || load_state(STATE_FOUND_INF) != 0.0) return;
  Chunk chunk = load_chunk(p.first + row);
  uint at = (t & ((1u << p.shift) - 1u)) * REWIND_FLAT;
  if (at >= chunk.size) return;
  uint i = chunk.begin + at, g = chunk.grad + at;
  if (is_whole(at, chunk.size, i | g | p.offset[0] | p.offset[1])) {
    vec4 lo, hi, g_lo, g_hi;
    load8_sum(i, lo, hi);
    load8_grad(g, g_lo, g_hi);
    store8_sum(i, lo + g_lo, hi + g_hi);
  } else {
    uint count = flat_end(at, chunk.size) - at;
    for (uint k = 0; k < count; ++k) store_sum(i + k, load_sum(i + k) + load_grad(g + k));
  }
}
