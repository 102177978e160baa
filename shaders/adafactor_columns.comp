//! buffers: grad:f32:read partial:f32:write
//! params: AdafactorMomentParams
//! local: 64
void main() {
  uint i = thread_id();
  if (i >= p.matrices * p.chunks * p.cols) return;
  uint part = i / p.cols, col = i - part * p.cols;
  uint matrix = part / p.chunks, first = (part - matrix * p.chunks) * ADAFACTOR_ROWS;
  uint end = min(first + ADAFACTOR_ROWS, p.rows), at = (matrix * p.rows + first) * p.cols + col;
  float squares = 0.0;
  for (uint r = first; r < end; ++r, at += p.cols) {
    float g = load_grad(at);
    squares += g * g;
  }
  store_partial(i, squares);
}
