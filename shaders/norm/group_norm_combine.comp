//! buffers: moments:f32:read combined:f32:write
//! params: GroupNormCombineParams
//! local: 64
layout(constant_id = 0) const uint LAST = 0;  //! 0 1

void main() {
  uint runs = (p.blocks + GROUP_NORM_BLOCKS - 1) / GROUP_NORM_BLOCKS;
  uint i = thread_id(), group = i / runs, begin = i % runs * GROUP_NORM_BLOCKS;
  if (group >= p.groups) return;
  float count = 0.0, mean = 0.0, squares = 0.0;
  for (uint b = begin; b < min(begin + GROUP_NORM_BLOCKS, p.blocks); ++b) {
    uint at = 3 * (group * p.blocks + b);
    float more = load_moments(at), delta = load_moments(at + 1) - mean;
    float share = more / (count + more);
    squares += load_moments(at + 2) + delta * delta * count * share;
    mean += delta * share;
    count += more;
  }
  if (LAST == 1) {
    store_combined(2 * group, mean / NORM_SCALE);
    store_combined(2 * group + 1, NORM_SCALE / sqrt(squares / count + p.eps * NORM_SCALE * NORM_SCALE));
  } else {
    store_combined(3 * i, count);
    store_combined(3 * i + 1, mean);
    store_combined(3 * i + 2, squares);
  }
}
