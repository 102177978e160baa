//! buffers: blank:f32:read label:f32:read lengths:i32:read alpha:f32:read loss:f32:read dloss:f32:read carry:f32:read_write gradient:f32:write
//! params: RnntParams
//! local: subgroup
//! grid: groups
#include "sequence/rnnt.glsl"

// Returns the gradient of a step of log-probability `own`, from a place with `alpha` to one with `beta`.
float of_step(float alpha, float own, float beta, float loss, float scale) {
  if (scale == 0.0) return 0.0;  // covers an infinite loss, too, which then does not count
  if (!is_finite(loss)) return NAN;
  const float log_share = alpha + own + beta;
  return log_share > LOG_NEVER / 2 ? -exp(log_share + loss) * scale : 0.0;
}

void main() {
  const uint n = group_id();
  if (n >= p.samples) return;
  const uint frames = uint(load_lengths(2 * n)), labels = uint(load_lengths(2 * n + 1));
  const uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x;
  const uint planes = p.samples * p.frames * p.width;
  const float loss = load_loss(n), scale = load_dloss(n);
  for (uint u = lane; u < p.width; u += lanes) ways[p.end % 2][u] = load_carry(n * p.width + u);
  barrier();
  for (uint d = p.end; d-- > p.begin;) {
    const uint behind = (d + 1) % 2;
    for (uint u = lane; u < p.width; u += lanes) {
      const uint t = d - u;
      float way = LOG_NEVER;
      if (t < p.frames) {
        const uint at = place(n, t, u);
        float dblank = 0.0, dlabel = 0.0;
        if (t < frames && u <= labels) {
          const bool ends = t + 1 == frames && u == labels;
          const float over = ends ? 0.0 : t + 1 < frames ? ways[behind][u] : LOG_NEVER;
          const float up = u < labels ? ways[behind][u + 1] : LOG_NEVER;
          const float blank = known(load_blank(at));
          const float label = u < labels ? known(load_label(at)) : LOG_NEVER;
          way = max(log_add(over + blank, up + label, LOG_NEVER), LOG_NEVER);
          dblank = of_step(load_alpha(at), blank, over, loss, scale);
          dlabel = of_step(load_alpha(at), label, up, loss, scale);
        }
        store_gradient(at, dblank);
        store_gradient(planes + at, dlabel);
      }
      ways[d % 2][u] = way;
    }
    barrier();
  }
  for (uint u = lane; u < p.width; u += lanes) store_carry(n * p.width + u, ways[p.begin % 2][u]);
}
