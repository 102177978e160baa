//! buffers: x:T:read y:U:write
//! types: T = f32 f16 i32 u8; U = f32 f16 i32 u8
//! params: CopyParams
//! local: 64
#include "layout/convert.glsl"
#include "common/flat.glsl"
#include "common/strided.glsl"
layout(constant_id = 0) const uint FLAT = 0;  //! 0 1 2

void copy_flat(uint i) {
  if (is_whole(i, p.n, p.offset[0] | p.offset[1])) {
    T_vec4 lo, hi;
    load8_x(i, lo, hi);
    store8_y(i, CONVERT4(lo), CONVERT4(hi));
  } else {
    for (uint k = i; k < flat_end(i, p.n); ++k) store_y(k, CONVERT(load_x(k)));
  }
}

void copy_strided(uint i) {
  uint x = 0, y = 0;
  for (uint d = p.rank, rest = i; d-- > 0;) {
    uint coordinate = next_coordinate(rest, d);
    x += coordinate * p.x_stride[d];
    y += coordinate * p.y_stride[d];
  }
  if (FLAT == 2) {
    T_vec4 lo, hi;
    load8_x(x, lo, hi);
    store8_y(y, CONVERT4(lo), CONVERT4(hi));
  } else {
    store_y(y, CONVERT(load_x(x)));
  }
}

void main() {
  uint i = thread_id() * (FLAT == 1 ? REWIND_FLAT : 1);
  if (i >= (FLAT == 2 ? p.n / 8 : p.n)) return;
  if (FLAT == 1) {
    copy_flat(i);
  } else {
    copy_strided(i);
  }
}
