//! buffers: partial:f32:read first:f32:read mean:f32:write var:f32:write both:f32:write
//! params: BatchNormCombineParams
//! reference: none
//! local: 4,32
//! grid: 3d
//! precise: yes
#include "common/numbers.glsl"
#define AHEAD 4  // chunks whose values are loaded at once

struct Moments {
  float count, mean, squares;
};

// The moments of 4 channels: 32 parts, each of a run of chunks.
shared float counts[128], means[128], squares[128];

Moments kept(uint place) { return Moments(counts[place], means[place], squares[place]); }
void keep(uint place, Moments m) {
  counts[place] = m.count;
  means[place] = m.mean;
  squares[place] = m.squares;
}

// Joins two sets of moments (Chan et al. 1979): `b` comes after `a`.
Moments joined(Moments a, Moments b) {
  if (b.count == 0.0) return a;
  float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  return Moments(count, a.mean + delta * share, a.squares + (b.squares + delta * delta * a.count * share));
}

Moments of_chunks(uint c, uint begin, uint end) {
  Moments all = Moments(0.0, 0.0, 0.0);
  for (uint first = begin; first < end; first += AHEAD) {
    float mean[AHEAD], deviations[AHEAD];
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) {
      uint at = min(first + k, end - 1) * p.chunk_step + c;
      mean[k] = load_partial(at);
      deviations[k] = load_partial(at + p.deviations_at);
    }
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) {
      uint chunk = first + k;
      float count = chunk < end ? float(min(p.chunk_rows, p.rows - chunk * p.chunk_rows)) : 0.0;
      all = joined(all, Moments(count, mean[k], deviations[k]));
    }
  }
  return all;
}

void main() {
  uint c = gl_GlobalInvocationID.x, part = gl_LocalInvocationID.y, place = part * 4 + gl_LocalInvocationID.x;
  uint run = gl_WorkGroupID.z, run_end = min((run + 1) * p.run, p.chunks);
  uint length = (p.run + 31) / 32, begin = min(run * p.run + part * length, run_end);
  Moments own = Moments(0.0, 0.0, 0.0);
  if (c < p.channels) own = of_chunks(c, begin, min(begin + length, run_end));
  keep(place, own);
  for (uint step = 1; step < 32; step *= 2) {
    barrier();
    if (part % (2 * step) == 0) keep(place, joined(kept(place), kept(place + 4 * step)));
  }
  if (part > 0 || c >= p.channels) return;
  bool is_last = p.run >= p.chunks;
  store_var(run * p.channels + c, is_last ? squares[place] / p.rows : squares[place]);
  if (!is_last) {
    store_mean(run * p.channels + c, means[place]);
    return;
  }
  // The sum has a rest that rounding leaves (Knuth 1969).
  float base = load_first(c), above = means[place] / NORM_SCALE, mean = base + above, moved = mean - base;
  float rest = (base - (mean - moved)) + (above - moved);
  store_mean(c, mean);
  store_both(c, mean);
  store_both(p.channels + c, is_finite(mean) ? rest : 0.0);
}
