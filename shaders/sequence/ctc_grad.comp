//! buffers: states:i32:read posterior:f32:read dloss:f32:read dx:f32:read_write
//! params: CtcParams
//! local: 64
#include "sequence/ctc.glsl"

void main() {
  const uint i = thread_id();
  if (i >= p.frames * p.samples * p.width) return;
  const uint s = i % p.width, n = i / p.width % p.samples, t = i / p.width / p.samples;
  if ((load_states(state_at(n, FLAGS, s)) & CTC_FIRST) == 0) return;
  if (t >= uint(load_states(state_at(n, COUNTS, 0)))) return;
  const float scale = load_dloss(n);
  if (scale == 0.0) return;  // an infinite loss that does not count
  float sum = 0.0;
  for (int k = int(s); k >= 0; k = load_states(state_at(n, NEXT, uint(k))))
    sum += load_posterior((t * p.samples + n) * p.width + uint(k));
  store_dx((t * p.samples + n) * p.classes + uint(load_states(state_at(n, CLASS, s))),
           -sum * scale);
}
