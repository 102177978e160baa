//! buffers: x:f32:read states:i32:read alpha:f32:read loss:f32:read carry:f32:read_write posterior:f32:write
//! params: CtcParams
//! local: subgroup
//! grid: groups
#include "ctc.glsl"

float posterior_of(float alpha, float beta, float x, float loss) {
  if (!is_finite(loss)) return NAN;
  const bool possible = alpha > LOG_NEVER / 2 && beta > LOG_NEVER / 2;
  return possible ? exp(alpha + beta - x + loss) : 0.0;
}

void main() {
  const uint n = group_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_states(state_at(n, COUNTS, 0)));
  const uint count = uint(load_states(state_at(n, COUNTS, 1)));
  const uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
  const float loss = load_loss(n);
  for (uint s = lane; s < p.width; s += lanes)
    ways[p.end % 2][s] = p.end < frames ? load_carry(n * p.width + s) : LOG_NEVER;
  barrier();
  for (uint t = p.end; t-- > p.begin;) {
    const uint behind = (t + 1) % 2, row = (t * p.samples + n) * p.width;
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
        const float x = known(load_x((t * p.samples + n) * p.classes + uint(own)));
        way = max(way + x, LOG_NEVER);
        share = posterior_of(load_alpha(row + s), way, x, loss);
      }
      ways[t % 2][s] = way;
      store_posterior(row + s, share);
    }
    barrier();
  }
  for (uint s = lane; s < p.width; s += lanes)
    store_carry(n * p.width + s, ways[p.begin % 2][s]);
}
