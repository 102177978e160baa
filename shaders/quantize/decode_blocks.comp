//! buffers: codes:u8:read y:T:write
//! types: T = f32 f16
//! params: BlockMatrixParams
//! local: 64
#define CODES 0
#include "quantize/blocks.glsl"

void main() {
  prepare_blocks();
  uint i = thread_id(), words = p.cols / 8;
  if (i >= p.rows * words) return;
  uint row = i / words, column = (i - row * words) * 8;
  vec4 lo, hi;
  decode8(row, column, lo, hi);
  store8_y(i * 8, lo, hi);
}
