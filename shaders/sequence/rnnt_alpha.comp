//! buffers: blank:f32:read label:f32:read lengths:i32:read alpha:f32:read_write
//! params: RnntParams
//! local: subgroup
//! grid: groups
#include "sequence/rnnt.glsl"

void main() {
  const uint n = group_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_lengths(2 * n)), labels = uint(load_lengths(2 * n + 1));
  const uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
  for (uint u = lane; u < p.width; u += lanes) {
    const uint t = p.begin - 1 - u;  // wraps before the first frame
    ways[(p.begin + 1) % 2][u] = t < frames && u <= labels ? load_alpha(place(n, t, u)) : LOG_NEVER;
  }
  barrier();
  for (uint d = p.begin; d < p.end; ++d) {
    const uint before = (d + 1) % 2;
    for (uint u = lane; u < p.width; u += lanes) {
      const uint t = d - u;
      float way = LOG_NEVER;
      if (t < frames && u <= labels) {
        const float over = t > 0 ? ways[before][u] + known(load_blank(place(n, t - 1, u))) : LOG_NEVER;
        const float up = u > 0 ? ways[before][u - 1] + known(load_label(place(n, t, u - 1))) : LOG_NEVER;
        way = d == 0 ? 0.0 : max(log_add(over, up, LOG_NEVER), LOG_NEVER);
        store_alpha(place(n, t, u), way);
      }
      ways[d % 2][u] = way;
    }
    barrier();
  }
}
