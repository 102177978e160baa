// Elements of blocks (core/blocks/block_type.h): 8 neighbours at a time, which always share a scale.
// Before including it, define CODES as the number of the binding `codes`.

layout(constant_id = 0) const uint TYPE = 0;  //! 0 1 2 3 4 5 6 7 8

// The types by their place in block_types().
#define Q4_0 0
#define Q4_1 1
#define Q5_0 2
#define Q5_1 3
#define Q8_0 4
#define Q4_K 5
#define Q5_K 6
#define Q6_K 7
#define NF4 8

// The values of NF4's codes. An array of constants would become local memory or a branch for each value.
shared float nf4_values[16];

// All threads must call it before they decode.
void prepare_blocks() {
  if (TYPE != NF4) return;
  const float values[16] = float[](NF4_VALUES);
  if (gl_LocalInvocationID.x == 0) {
    [[unroll]] for (uint i = 0; i < 16; ++i) nf4_values[i] = values[i];
  }
  barrier();
}

// The 4 bytes from byte `at` on, at any address.
uint code_word(uint at) {
  uint byte_at = p.offset[CODES] + at, shift = (byte_at & 3) * 8, low = codes_uint[byte_at >> 2];
  return shift == 0 ? low : low >> shift | codes_uint[(byte_at >> 2) + 1] << (32 - shift);
}

int code_byte(uint at) { return load_codes(at); }

// An f16, also where the call's own elements are bf16.
float code_half(uint at) {
  return unpackHalf2x16(uint(load_codes(at)) | uint(load_codes(at + 1)) << 8).x;
}

// 8 bytes, shifted right and masked.
void code_bytes(uint at, uint shift, uint mask, out ivec4 lo, out ivec4 hi) {
  lo = unpack_bytes(code_word(at) >> shift & mask * 0x01010101u);
  hi = unpack_bytes(code_word(at + 4) >> shift & mask * 0x01010101u);
}

// Elements j to j + 7 of a block of 32.
void decode8_small(uint at, uint j, out vec4 lo, out vec4 hi) {
  float d = code_half(at);
  ivec4 a, b;
  if (TYPE == Q8_0) {
    uint first = code_word(at + 2 + j), last = code_word(at + 6 + j);
    a = (unpack_bytes(first) ^ 128) - 128;
    b = (unpack_bytes(last) ^ 128) - 128;
    lo = d * vec4(a);
    hi = d * vec4(b);
    return;
  }
  bool has_minimum = TYPE == Q4_1 || TYPE == Q5_1, has_fifth = TYPE == Q5_0 || TYPE == Q5_1;
  uint codes_at = at + (has_minimum ? 4 : 2) + (has_fifth ? 4 : 0);
  code_bytes(codes_at + (j & 15), j < 16 ? 0 : 4, 15, a, b);
  if (has_fifth) {
    uint fifth = code_word(codes_at - 4) >> j;
    a |= ivec4(uvec4(fifth) >> uvec4(0u, 1u, 2u, 3u) & 1u) << 4;
    b |= ivec4(uvec4(fifth) >> uvec4(4u, 5u, 6u, 7u) & 1u) << 4;
  }
  int middle = has_minimum ? 0 : has_fifth ? 16 : 8;
  float low = has_minimum ? code_half(at + 2) : 0.0;
  lo = d * vec4(a - middle) + low;
  hi = d * vec4(b - middle) + low;
}

// Elements e to e + 7 of a block of 256.
void decode8_large(uint at, uint e, out vec4 lo, out vec4 hi) {
  ivec4 a, b, c, d;
  if (TYPE == Q6_K) {
    uint part = e / 128, quarter = e / 32 % 4, i = e % 32;
    code_bytes(at + part * 64 + quarter % 2 * 32 + i, quarter / 2 * 4, 15, a, b);
    code_bytes(at + 128 + part * 32 + i, quarter * 2, 3, c, d);
    int scale = (code_byte(at + 192 + e / 16) ^ 128) - 128;
    float factor = code_half(at + 208) * float(scale);
    lo = factor * vec4((a | c << 4) - 32);
    hi = factor * vec4((b | d << 4) - 32);
    return;
  }
  uint j = e / 32, i = e % 32;
  int scale, minimum;
  if (j < 4) {
    scale = code_byte(at + 4 + j) & 63;
    minimum = code_byte(at + 8 + j) & 63;
  } else {
    int both = code_byte(at + 8 + j);
    scale = both & 15 | code_byte(at + j) >> 6 << 4;
    minimum = both >> 4 | code_byte(at + 4 + j) >> 6 << 4;
  }
  code_bytes(at + (TYPE == Q5_K ? 48 : 16) + j / 2 * 32 + i, j % 2 * 4, 15, a, b);
  if (TYPE == Q5_K) {
    code_bytes(at + 16 + i, j, 1, c, d);
    a |= c << 4;
    b |= d << 4;
  }
  float step = code_half(at) * float(scale), low = code_half(at + 2) * float(minimum);
  lo = step * vec4(a) - low;
  hi = step * vec4(b) - low;
}

float shared_float(uint at) { return uintBitsToFloat(code_word(p.tail + at)); }

// The scale of the block of NF4 with this number among all of the matrix.
float nf4_scale(uint number) {
  uint group = 257 * 4 + number / NF4_GROUP * (4 + NF4_GROUP);
  int code = code_byte(p.tail + group + 4 + number % NF4_GROUP);
  precise float scale = shared_float(code * 4) * shared_float(group);
  scale += shared_float(256 * 4);
  return scale;
}

// Elements column to column + 7 of a row of NF4. A byte has two neighbours, the first one in its high bits.
void decode8_nf4(uint row, uint column, out vec4 lo, out vec4 hi) {
  float scale = nf4_scale(row * (p.cols / NF4_BLOCK) + column / NF4_BLOCK);
  uint codes = code_word(row * p.row_bytes + column / 2);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    uint shift = i / 2 * 8 + (1 - i % 2) * 4;
    lo[i] = nf4_values[codes >> shift & 15] * scale;
    hi[i] = nf4_values[codes >> shift + 16 & 15] * scale;
  }
}

uint block_bytes() {
  return TYPE == Q4_0   ? 18
         : TYPE == Q4_1 ? 20
         : TYPE == Q5_0 ? 22
         : TYPE == Q5_1 ? 24
         : TYPE == Q8_0 ? 34
         : TYPE == Q4_K ? 144
         : TYPE == Q5_K ? 176
                        : 210;
}

// Elements column to column + 7, a multiple of 8, of the row with this number among those of the call.
void decode8(uint row, uint column, out vec4 lo, out vec4 hi) {
  row += p.first;
  uint row_at = row * p.row_bytes;
  if (TYPE == NF4)
    decode8_nf4(row, column, lo, hi);
  else if (TYPE >= Q4_K)
    decode8_large(row_at + column / 256 * block_bytes(), column % 256, lo, hi);
  else
    decode8_small(row_at + column / 32 * block_bytes(), column % 32, lo, hi);
}
