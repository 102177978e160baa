// A row's maximum and sum of exponentials, for `softmax` and `cross_entropy`. The input is buffer x.
#include "common/numbers.glsl"
#include "common/reduce.glsl"
#include "common/rows.glsl"

struct RowSum {
  float top;        // max(x)
  float total;      // sum(exp(x - top)); NaN if an element is NaN or +inf, or all are -inf
  float log_total;  // the logarithm of `total`; drivers' log(NaN) may be a number
};

// Sums the row from element `start` on, of which `words` columns move 8 at a time.
RowSum row_sum(uint start, uint words) {
  vec4 top = vec4(-INFINITY), lo, hi;
  uvec4 bits = uvec4(0);
  FOR_WORDS(c, words) {
    load8_x(start + c, lo, hi);
    top = max(top, max(lo, hi));
    bits = max(bits, max(magnitude_bits(lo), magnitude_bits(hi)));
  }
  FOR_OTHERS(c, words, p.cols) {
    float x = load_x(start + c);
    top.x = max(top.x, x);
    bits.x = max(bits.x, magnitude_bits(x));
  }
  RowSum row;
  row.top = workgroup_max(max(max(top.x, top.y), max(top.z, top.w)));
  bool has_nan = workgroup_max(max(max(bits.x, bits.y), max(bits.z, bits.w))) > 0x7f800000u;

  vec4 total = vec4(0.0);
  FOR_WORDS(c, words) {
    load8_x(start + c, lo, hi);
    total += exp(lo - row.top) + exp(hi - row.top);
  }
  FOR_OTHERS(c, words, p.cols) total.x += exp(load_x(start + c) - row.top);
  row.total = workgroup_sum((total.x + total.y) + (total.z + total.w));
  row.log_total = log(row.total);
  if (has_nan || !is_finite(row.top)) row.total = row.log_total = NAN;
  return row;
}
