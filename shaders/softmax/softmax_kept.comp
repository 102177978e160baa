//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f16,f16 f16,f32
//! params: SoftmaxParams
//! reference: softmax
//! local: subgroup
//! grid: groups
//! requires: subgroup arithmetic shuffle
#define HAS_ARITHMETIC 1
#include "common/kept_rows.glsl"
#include "common/numbers.glsl"
layout(constant_id = 0) const uint LOG = 0;  //! 0 1

vec4 lo[MOST_ROUNDS], hi[MOST_ROUNDS];

void main() {
  uint row = team_row();
  if (row >= p.rows) return;
  uint start = row * p.cols;
  KEEP_ROW(load8_x, start, p.cols, -INFINITY, lo, hi)
  vec4 tops = vec4(-INFINITY);
  uvec4 bits = uvec4(0);
  FOR_ROUNDS(r) {
    tops = max(tops, max(lo[r], hi[r]));
    bits = max(bits, max(magnitude_bits(lo[r]), magnitude_bits(hi[r])));
  }
  float top = team_max(max(max(tops.x, tops.y), max(tops.z, tops.w)));
  bool has_nan = team_max(max(max(bits.x, bits.y), max(bits.z, bits.w))) > 0x7f800000u;
  vec4 sums = vec4(0.0);
  FOR_ROUNDS(r) {
    lo[r] -= top;
    hi[r] -= top;
    vec4 exp_lo = exp(lo[r]), exp_hi = exp(hi[r]);
    sums += exp_lo + exp_hi;
    if (LOG == 0) {
      lo[r] = exp_lo;
      hi[r] = exp_hi;
    }
  }
  float total = team_sum(sums), log_total = log(total);
  if (has_nan || !is_finite(top)) total = log_total = NAN;
  FOR_ROUNDS(r) {
    uint c = team_column(r);
    if (c < p.cols) {
      if (LOG == 1) {
        store8_y(start + c, lo[r] - log_total, hi[r] - log_total);
      } else {
        store8_y(start + c, lo[r] / total, hi[r] / total);
      }
    }
  }
}
