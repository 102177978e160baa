//! buffers: x:f32:read states:i32:read alpha:f32:read loss:f32:read carry:f32:read_write posterior:f32:write
//! params: CtcParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "sequence/ctc.glsl"
#include "common/reduce.glsl"

// The logarithm of all ways of a sample, from alpha and the offset of its last frame.
struct Total {
  float ways, offset;
};

void main() {
  const uint n = group_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_states(state_at(n, COUNTS, 0)));
  const uint count = uint(load_states(state_at(n, COUNTS, 1)));
  const uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
  const bool is_possible = is_finite(load_loss(n));
  Total total = Total(0.0, 0.0);
  if (frames > 0) {
    const uint last = row_at(n, frames - 1);
    total.ways = log_add(load_alpha(last + count - 1), count > 1 ? load_alpha(last + count - 2) : LOG_NEVER, LOG_NEVER);
    total.offset = load_alpha(last + OFFSET);
  }
  float offset = p.end < frames ? load_carry(n * p.width + OFFSET) : 0.0;
  for (uint s = lane; s < p.width; s += lanes)
    ways[p.end % 2][s] = p.end < frames ? load_carry(n * p.width + s) : LOG_NEVER;
  barrier();
  for (uint t = p.end; t-- > p.begin;) {
    const uint behind = (t + 1) % 2, row = row_at(n, t);
    const float offsets = t < frames ? load_alpha(row + OFFSET) + offset - total.offset : 0.0;
    float highest = LOG_NEVER;
    for (uint s = lane; s < p.width; s += lanes) {
      const int own = load_states(state_at(n, CLASS, s));
      float way = LOG_NEVER, share = 0.0;
      if (own >= 0 && t < frames) {
        if (t == frames - 1) {
          way = s + 2 >= count ? 0.0 : LOG_NEVER;
        } else {
          const bool skips =
              s + 2 < count && (load_states(state_at(n, FLAGS, s + 2)) & CTC_SKIPS) != 0;
          way = log_add(ways[behind][s], s + 1 < count ? ways[behind][s + 1] : LOG_NEVER,
                        skips ? ways[behind][s + 2] : LOG_NEVER);
        }
        const float alpha = load_alpha(row + s);
        const bool has_way = alpha > LOG_NEVER / 2 && way > LOG_NEVER / 2;
        share = !is_possible ? NAN : has_way ? exp(min((alpha - total.ways + way) + offsets, 0.0)) : 0.0;
        const float x = known(load_x((t * p.samples + n) * p.classes + uint(own)));
        way = max(way + x, LOG_NEVER);
      }
      highest = max(highest, way);
      ways[t % 2][s] = way;
      store_posterior(row + s, share);
    }
    if (t % CTC_RENEWED == 0) {
      const float step = whole_offset(workgroup_max(highest));
      offset += step;
      for (uint s = lane; s < p.width; s += lanes) ways[t % 2][s] = less(ways[t % 2][s], step);
    }
    barrier();
  }
  for (uint s = lane; s < p.width; s += lanes)
    store_carry(n * p.width + s, s == OFFSET ? offset : ways[p.begin % 2][s]);
}
