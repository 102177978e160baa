//! buffers: x:T:read y:T:write
//! types: T = f32 f16
//! params: PadAxisParams
//! local: 64
layout(constant_id = 0) const uint MODE = 1;   //! 1 2 3
layout(constant_id = 1) const uint WHOLE = 0;  //! 0 1

// Returns the element that place o shows.
uint shown_at(uint o) {
  int at = int(o) - int(p.before), size = int(p.size);
  if (MODE == PAD_REPLICATE) return uint(clamp(at, 0, size - 1));
  if (MODE == PAD_CIRCULAR) return uint(at < 0 ? at + size : at >= size ? at - size : at);
  return uint(at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at);
}

void main() {
  uint n = p.outer * p.padded * p.inner, i = thread_id() * (WHOLE == 1 ? 8 : 1);
  if (i >= n) return;
  uint line = i / p.inner, outer = line / p.padded;
  uint at = (outer * p.size + shown_at(line - outer * p.padded)) * p.inner + i - line * p.inner;
  if (WHOLE == 1) {
    vec4 lo, hi;
    load8_x(at, lo, hi);
    store8_y(i, lo, hi);
  } else {
    store_y(i, load_x(at));
  }
}
