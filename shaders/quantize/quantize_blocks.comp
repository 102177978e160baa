//! buffers: x:T:read codes:u8:write steps:f32:write
//! types: T = f32 f16
//! params: QuantizeBlocksParams
//! local: 64
#include "common/flat.glsl"
#include "common/numbers.glsl"

#define THREADS 16  // of a block, each with 8 elements

shared uint largest[64];

uint largest_of(uvec4 bits) { return max(max(bits.x, bits.y), max(bits.z, bits.w)); }

int encode(float x, float inverse) {
  if (is_zero(x)) return QUANTIZE_ZERO;
  int k = int(clamp(ceil(abs(x) * inverse), 1.0, float(QUANTIZE_LEVELS)));
  return QUANTIZE_ZERO + (is_negative(x) ? -k : k);
}

ivec4 encode(vec4 x, float inverse) {
  return ivec4(encode(x.x, inverse), encode(x.y, inverse), encode(x.z, inverse), encode(x.w, inverse));
}

void main() {
  uint i = thread_id() * REWIND_FLAT, lane = gl_LocalInvocationID.x;
  bool whole = is_whole(i, p.n, p.offset[0] | p.offset[1]);
  vec4 lo = vec4(0.0), hi = vec4(0.0);
  if (whole) {
    load8_x(i, lo, hi);
  } else {
    [[unroll]] for (uint k = 0; k < REWIND_FLAT; ++k) {
      float x = i + k < p.n ? load_x(i + k) : 0.0;
      if (k < 4) lo[k] = x;
      if (k >= 4) hi[k - 4] = x;
    }
  }
  // Bits of magnitudes are in the order of the values, with what is not finite above all others.
  largest[lane] = max(largest_of(magnitude_bits(lo)), largest_of(magnitude_bits(hi)));
  barrier();
  [[unroll]] for (uint half_block = THREADS / 2; half_block > 0; half_block /= 2) {
    if (lane % THREADS < half_block) largest[lane] = max(largest[lane], largest[lane + half_block]);
    barrier();
  }
  uint most = largest[lane - lane % THREADS];
  if (i >= p.n) return;
  bool finite = most < 0x7f800000u;
  float step = max(uintBitsToFloat(most) / float(QUANTIZE_LEVELS), QUANTIZE_LEAST);
  if (lane % THREADS == 0) store_steps(i / QUANTIZE_BLOCK, finite ? step : NAN);
  ivec4 first = ivec4(QUANTIZE_ZERO), last = first;
  if (finite) {
    first = encode(lo, 1.0 / step);
    last = encode(hi, 1.0 / step);
  }
  if (whole) {
    store8_codes(i, first, last);
  } else {
    [[unroll]] for (uint k = 0; k < REWIND_FLAT; ++k) {
      if (i + k < p.n) store_codes(i + k, k < 4 ? first[k % 4] : last[k % 4]);
    }
  }
}
