//! buffers: partial:f32:read mean:f32:write var:f32:write
//! params: BatchNormCombineParams
//! local: 64
void main() {
  uint c = thread_id();
  if (c >= p.channels) return;
  float mean = 0.0, squares = 0.0;
  for (uint chunk = 0; chunk < p.chunks; ++chunk) {
    uint begin = chunk * p.chunk_rows, at = chunk * 2 * p.channels + c;
    float seen = float(begin), count = float(min(p.chunk_rows, p.rows - begin));
    float delta = load_partial(at) - mean, share = count / (seen + count);
    squares += load_partial(at + p.channels) + delta * delta * seen * share;
    mean += delta * share;
  }
  store_mean(c, mean);
  store_var(c, squares / p.rows);
}
