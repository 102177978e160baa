// The moments of the groups to which a thread's 8 channels belong: first element, mean less that, and 1 / deviation.
struct Moments {
  vec4 first_lo, first_hi, mean_lo, mean_hi, rstd_lo, rstd_hi;
};

Moments moments_at(Place at) {
  Moments m;
  load_firsts(at, m.first_lo, m.first_hi);
  uint first = at.sample_index * (p.channels / p.width);
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    uint lo = 2 * (first + group_of(at.c + k)), hi = 2 * (first + group_of(at.c + k + 4));
    m.mean_lo[k] = load_stats(lo);
    m.rstd_lo[k] = load_stats(lo + 1);
    m.mean_hi[k] = load_stats(hi);
    m.rstd_hi[k] = load_stats(hi + 1);
  }
  return m;
}
