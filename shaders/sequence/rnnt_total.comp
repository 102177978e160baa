//! buffers: blank:f32:read lengths:i32:read alpha:f32:read loss:f32:write
//! params: RnntParams
//! local: 64
#include "sequence/rnnt.glsl"

void main() {
  const uint n = thread_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_lengths(2 * n)), labels = uint(load_lengths(2 * n + 1));
  float total = LOG_NEVER;
  if (frames > 0) {
    const uint last = place(n, frames - 1, labels);
    total = load_alpha(last) + known(load_blank(last));
  }
  store_loss(n, total <= LOG_NEVER / 2 ? INFINITY : -total);
}
