//! buffers: x:f32:read states:i32:read alpha:f32:read_write
//! params: CtcParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "sequence/ctc.glsl"
#include "common/reduce.glsl"

void main() {
  const uint n = group_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_states(state_at(n, COUNTS, 0)));
  const uint end = min(p.end, frames), lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
  float offset = 0.0;
  if (p.begin > 0) {
    const uint row = row_at(n, p.begin - 1);
    for (uint s = lane; s < p.width; s += lanes) ways[(p.begin - 1) % 2][s] = load_alpha(row + s);
    offset = load_alpha(row + OFFSET);
  }
  barrier();
  for (uint t = p.begin; t < end; ++t) {
    const uint before = (t + 1) % 2, row = row_at(n, t);
    float highest = LOG_NEVER;
    for (uint s = lane; s < p.width; s += lanes) {
      const int own = load_states(state_at(n, CLASS, s));
      float way = LOG_NEVER;
      if (own >= 0) {
        if (t == 0) {
          way = s < 2 ? 0.0 : LOG_NEVER;
        } else {
          const bool skips = (load_states(state_at(n, FLAGS, s)) & CTC_SKIPS) != 0;
          way = log_add(ways[before][s], s >= 1 ? ways[before][s - 1] : LOG_NEVER,
                        skips ? ways[before][s - 2] : LOG_NEVER);
        }
        const float x = known(load_x((t * p.samples + n) * p.classes + uint(own)));
        way = max(way + x, LOG_NEVER);
      }
      highest = max(highest, way);
      ways[t % 2][s] = way;
      store_alpha(row + s, s == OFFSET ? offset : way);
    }
    if (t % CTC_RENEWED == 0) {
      const float step = whole_offset(workgroup_max(highest));
      offset += step;
      for (uint s = lane; s < p.width; s += lanes) {
        const float way = less(ways[t % 2][s], step);
        ways[t % 2][s] = way;
        store_alpha(row + s, s == OFFSET ? offset : way);
      }
    }
    barrier();
  }
}
