//! buffers: x:T:read y:T:write tap:I:write
//! types: T = f32 f16; I = u8 i32
//! params: PoolParams
//! local: 64
#include "common/numbers.glsl"
#include "images/pool.glsl"

// The first maximum of 4 channels so far.
struct Best {
  vec4 value;
  ivec4 at;
};

void improve(inout Best best, vec4 x, int at) {
  bvec4 first = lessThan(best.at, ivec4(0)), larger = greaterThan(x, best.value);
  uvec4 better = (uvec4(first) | uvec4(larger) | uvec4(is_nan(x))) & uvec4(not(is_nan(best.value)));
  best.value = mix(best.value, x, bvec4(better));
  best.at = mix(best.at, ivec4(at), bvec4(better));
}

void pool(Position o, bool whole, out Best lo, out Best hi) {
  lo = hi = Best(vec4(-INFINITY), ivec4(-1));
  uint rows = count_rows(o.h), columns = count_columns(o.w);
  for (uint kh = 0; kh < rows; ++kh) {
    uint h = first_row(o.h) + kh * p.dilation_h;
    if (h >= p.in_h) continue;
    for (uint kw = 0; kw < columns; ++kw) {
      uint w = first_column(o.w) + kw * p.dilation_w;
      if (w >= p.in_w) continue;
      vec4 x_lo, x_hi = vec4(0.0);
      if (whole) {
        load8_x(input_at(o, h, w), x_lo, x_hi);
      } else {
        x_lo = vec4(load_x(input_at(o, h, w)));
      }
      improve(lo, x_lo, int(kh * p.kernel_w + kw));
      if (whole) improve(hi, x_hi, int(kh * p.kernel_w + kw));
    }
  }
}

void main() {
  uint n = p.batch * p.out_h * p.out_w * p.channels, i = thread_id() * REWIND_FLAT;
  if (i >= n) return;
  Best lo, hi;
  if (is_whole(i, n, p.channels | p.offset[0] | p.offset[1] | p.offset[2])) {
    pool(position(i, p.out_h, p.out_w), true, lo, hi);
    store8_y(i, lo.value, hi.value);
    store8_tap(i, lo.at, hi.at);
  } else {
    for (uint k = i; k < flat_end(i, n); ++k) {
      pool(position(k, p.out_h, p.out_w), false, lo, hi);
      store_y(k, lo.value.x);
      store_tap(k, lo.at.x);
    }
  }
}
