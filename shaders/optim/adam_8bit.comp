//! buffers: param:f32:read_write grad:f32:read m:u8:read_write v:u8:read_write absmax_m:f32:read_write absmax_v:f32:read_write maps:f32:read state:f32:read
//! params: Adam8bitParams
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "optim/adam_update.glsl"
#include "common/reduce.glsl"

#define WORDS 64  // words of 4 codes in a block
#define LARGEST 3.40282347e38

// The updated moments of the block: each thread owns one word.
shared vec4 new_m[WORDS], new_v[WORDS];

vec4 decode(ivec4 codes, uint map) {
  return vec4(load_maps(map + codes.x), load_maps(map + codes.y), load_maps(map + codes.z),
              load_maps(map + codes.w));
}

// Counts the bounds below x / scale.
int encode(float x, float scale, uint bounds) {
  uint code = 0;
  [[unroll]] for (uint step = 128; step > 0; step >>= 1) {
    if (x > load_maps(bounds + code + step - 1) * scale) code += step;
  }
  return int(code);
}

int encode_m(float m, float scale) { return encode(m, scale, 256); }

// Keeps v above 0, since the next update divides by it.
int encode_v(float v, float scale) {
  int code = encode(v, scale, 768);
  return v > 0.0 ? max(code, 1) : code;
}

float largest_of(vec4 x) { return max(max(x.x, x.y), max(x.z, x.w)); }

void main() {
  uint block = group_id(), begin = block * ADAM_8BIT_BLOCK;
  if (begin >= p.n || load_state(STATE_FOUND_INF) != 0.0) return;
  uint end = min(begin + ADAM_8BIT_BLOCK, p.n);
  uint offsets = p.offset[0] | p.offset[1] | p.offset[2] | p.offset[3];
  Rates rates = load_rates(p.own);
  float scale_m = load_absmax_m(block), scale_v = load_absmax_v(block);
  float most_m = 0.0, most_v = 0.0;
  for (uint w = gl_LocalInvocationID.x; w < WORDS; w += gl_WorkGroupSize.x) {
    uint i = begin + 4 * w;
    if (i >= end) break;
    bool is_whole = i + 4 <= end && (offsets & 3) == 0;
    vec4 x = vec4(0.0), g = x;
    ivec4 codes_m = ivec4(0), codes_v = codes_m;
    uint count = min(end - i, 4);
    if (is_whole) {
      x = load4_param(i);
      g = load4_grad(i);
      codes_m = load4_m(i);
      codes_v = load4_v(i);
    } else {
      for (uint k = 0; k < count; ++k) {
        x[k] = load_param(i + k);
        g[k] = load_grad(i + k);
        codes_m[k] = load_m(i + k);
        codes_v[k] = load_v(i + k);
      }
    }
    vec4 m = decode(codes_m, 0) * scale_m, v = decode(codes_v, 512) * scale_v;
    step4(rates, x, g, m, v);
    v = min(v, vec4(LARGEST));
    if (is_whole) {
      store4_param(i, x);
    } else {
      for (uint k = 0; k < count; ++k) store_param(i + k, x[k]);
      for (uint k = count; k < 4; ++k) m[k] = v[k] = 0.0;
    }
    most_m = max(most_m, largest_of(abs(m)));
    most_v = max(most_v, largest_of(v));
    new_m[w] = m;
    new_v[w] = v;
  }
  most_m = workgroup_max(most_m);
  most_v = workgroup_max(most_v);
  if (gl_LocalInvocationID.x == 0) {
    store_absmax_m(block, most_m);
    store_absmax_v(block, most_v);
  }
  for (uint w = gl_LocalInvocationID.x; w < WORDS; w += gl_WorkGroupSize.x) {
    uint i = begin + 4 * w;
    if (i >= end) break;
    vec4 m = new_m[w], v = new_v[w];
    ivec4 codes_m, codes_v;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
      codes_m[k] = encode_m(m[k], most_m);
      codes_v[k] = encode_v(v[k], most_v);
    }
    if (i + 4 <= end && (offsets & 3) == 0) {
      store4_m(i, codes_m);
      store4_v(i, codes_v);
    } else {
      for (uint k = 0; k < min(end - i, 4); ++k) {
        store_m(i + k, codes_m[k]);
        store_v(i + k, codes_v[k]);
      }
    }
  }
}
