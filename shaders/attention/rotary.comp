//! buffers: x:T:read frequencies:f32:read positions:i32:read y:T:write
//! types: T = f32 f16
//! params: RotaryParams
//! local: 64
#include "common/trig.glsl"

void main() {
  const uint pair = thread_id();
  if (pair >= p.pairs) return;
  const uint half_dim = p.dim / 2, i = pair % half_dim, line = pair / half_dim;
  const uint row = line % p.rows, head = line / p.rows % p.heads, batch = line / p.rows / p.heads;
  const float position = p.placed != 0 ? float(load_positions(batch * p.rows + row)) : float(p.first + row);
  const float angle = position * load_frequencies(i);
  const float c = p.scale * cos(angle), s = p.scale * (p.backward != 0 ? -sin(angle) : sin(angle));

  const uint a = p.interleaved != 0 ? 2 * i : i, b = p.interleaved != 0 ? a + 1 : i + half_dim;
  const uint from = batch * p.x_stride[0] + head * p.x_stride[1] + row * p.x_stride[2];
  const float left = load_x(from + a * p.x_stride[3]), right = load_x(from + b * p.x_stride[3]);
  store_y(line * p.dim + a, left * c - right * s);
  store_y(line * p.dim + b, right * c + left * s);
}
