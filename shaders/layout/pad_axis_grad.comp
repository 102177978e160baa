//! buffers: dy:T:read dx:T:write
//! types: T = f32 f16
//! params: PadAxisParams
//! local: 64
layout(constant_id = 0) const uint MODE = 1;   //! 1 2 3
layout(constant_id = 1) const uint WHOLE = 0;  //! 0 1

// Adds the gradient of places [begin, end) of the padded axis.
void add(uint line, uint begin, uint end, uint c, inout vec4 dx_lo, inout vec4 dx_hi) {
  for (uint o = begin; o < end; ++o) {
    uint at = (line * p.padded + o) * p.inner + c;
    if (WHOLE == 1) {
      vec4 lo, hi;
      load8_dy(at, lo, hi);
      dx_lo += lo;
      dx_hi += hi;
    } else {
      dx_lo.x += load_dy(at);
    }
  }
}

// Gathers: an element takes the gradient of its own place and of the places that show it.
void main() {
  uint n = p.outer * p.size * p.inner, i = thread_id() * (WHOLE == 1 ? 8 : 1);
  if (i >= n) return;
  uint row = i / p.inner, line = row / p.size, k = row - line * p.size, c = i - row * p.inner;
  uint own = p.before + k, last = p.size - 1;
  uvec2 left = uvec2(0), right = uvec2(0);  // [begin, end), initially empty
  if (MODE == PAD_REPLICATE) {
    if (k == 0) left.y = p.before;
    if (k == last) right = uvec2(p.before + p.size, p.padded);
  } else if (MODE == PAD_CIRCULAR) {
    if (own >= p.size) left = uvec2(own - p.size) + uvec2(0, 1);
    if (own + p.size < p.padded) right = uvec2(own + p.size) + uvec2(0, 1);
  } else {
    if (k > 0 && k <= p.before) left = uvec2(p.before - k) + uvec2(0, 1);
    uint mirrored = p.before + 2 * last - k;
    if (k < last && mirrored < p.padded) right = uvec2(mirrored) + uvec2(0, 1);
  }
  vec4 lo = vec4(0.0), hi = lo;
  add(line, left.x, left.y, c, lo, hi);
  add(line, own, own + 1, c, lo, hi);
  add(line, right.x, right.y, c, lo, hi);
  if (WHOLE == 1) {
    store8_dx(i, lo, hi);
  } else {
    store_dx(i, lo.x);
  }
}
