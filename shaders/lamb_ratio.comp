//! buffers: partial:f32:read first:i32:read state:f32:read ratio:f32:write
//! params: LambRatioParams
//! local: 64
void main() {
  uint i = thread_id();
  if (i >= p.parameters || load_state(STATE_FOUND_INF) != 0.0) return;
  float squares_x = 0.0, squares_u = 0.0;
  uint first = uint(load_first(i)), end = uint(load_first(i + 1));
  for (uint chunk = first; chunk < end; ++chunk) {
    squares_x += load_partial(chunk);
    squares_u += load_partial(p.chunks + chunk);
  }
  bool adapts = p.adapt != 0 && squares_x > 0.0 && squares_u > 0.0;
  float ratio = adapts ? sqrt(squares_x) / sqrt(squares_u) : 1.0;
  for (uint chunk = first; chunk < end; ++chunk) store_ratio(chunk, ratio);
}
