// A row's maximum and sum of exponentials, for `softmax` and `cross_entropy`. The input is buffer x.
#include "numbers.glsl"
#include "reduce.glsl"
#include "rows.glsl"

// Columns c to c + 7 of the row at `start`; those past the end are -inf.
void load_columns(uint start, uint c, bool whole, out vec4 lo, out vec4 hi) {
  if (whole) {
    load8_x(start + c, lo, hi);
  } else {
    lo = hi = vec4(-INFINITY);
    LOAD_SOME(load_x, start + c, p.cols - c, lo, hi)
  }
}

struct RowSum {
  float top;    // max(x)
  float total;  // sum(exp(x - top)); NaN if an element is NaN or +inf, or all are -inf
};

RowSum row_sum(uint start, bool whole) {
  vec4 top4 = vec4(-INFINITY);
  uvec4 bits = uvec4(0);
  vec4 lo, hi;
  FOR_COLUMNS(c, p.cols) {
    load_columns(start, c, whole, lo, hi);
    top4 = max(top4, max(lo, hi));
    bits = max(bits, max(magnitude_bits(lo), magnitude_bits(hi)));
  }
  RowSum row;
  row.top = workgroup_max(max(max(top4.x, top4.y), max(top4.z, top4.w)));
  bool has_nan = workgroup_max(max(max(bits.x, bits.y), max(bits.z, bits.w))) > 0x7f800000u;

  vec4 total4 = vec4(0.0);
  FOR_COLUMNS(c, p.cols) {
    load_columns(start, c, whole, lo, hi);
    total4 += exp(lo - row.top) + exp(hi - row.top);
  }
  row.total = workgroup_sum((total4.x + total4.y) + (total4.z + total4.w));
  if (has_nan || !is_finite(row.top)) row.total = NAN;
  return row;
}
