//! buffers: states:i32:read alpha:f32:read loss:f32:write
//! params: CtcParams
//! local: 64
#include "sequence/ctc.glsl"

void main() {
  const uint n = thread_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_states(state_at(n, COUNTS, 0)));
  const uint count = uint(load_states(state_at(n, COUNTS, 1)));
  float total = count == 1 ? 0.0 : LOG_NEVER, offset = 0.0;
  if (frames > 0) {
    const uint last = row_at(n, frames - 1);
    total = log_add(load_alpha(last + count - 1), count > 1 ? load_alpha(last + count - 2) : LOG_NEVER, LOG_NEVER);
    offset = load_alpha(last + OFFSET);
  }
  store_loss(n, total <= LOG_NEVER / 2 ? INFINITY : -(total + offset));
}
