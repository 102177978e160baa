// Convolutions with a group per channel on CPU drivers. Threads lie across the words of channels; each
// has a tile of ROWS x COLUMNS pixels and of TAPS x TAPS elements of the kernel. A load costs these
// drivers as much as many products, so tiles are large, loads are whole words, and none stands in a
// branch.
#ifdef T_F16
#define WORD 4  // elements in one
#define word_vec vec4
vec4 unpack64(uint64_t word) { return unpack_halves(unpackUint2x32(word)); }
uint64_t pack64(vec4 v) { return packUint2x32(pack_halves(v)); }
#else
#define WORD 2
#define word_vec vec2
vec2 unpack64(uint64_t word) { return uintBitsToFloat(unpackUint2x32(word)); }
uint64_t pack64(vec2 v) { return packUint2x32(floatBitsToUint(v)); }
#endif

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Words { uint64_t data[]; };
layout(constant_id = 0) const uint STRIDE = 1;  //! 0 1 2
// Along both axes, with taps that touch. 0: any other.

#ifdef T_F16
#define ROWS 2
#else
#define ROWS 4
#endif
#define COLUMNS 4
#define TAPS 3
const uint ROW_SPAN = STRIDE == 0 ? ROWS * TAPS : (ROWS - 1) * STRIDE + TAPS;
const uint SPAN = STRIDE == 0 ? COLUMNS * TAPS : (COLUMNS - 1) * STRIDE + TAPS;

Words x64 = Words(address_table[0]);
word_vec span[COLUMNS * TAPS];  // what columns and taps meet in one row, zero outside the image

// Which of the places that a tile meets along an axis is that of pixel i and tap t.
uint met(uint i, uint t) { return STRIDE == 0 ? i * TAPS + t : i * STRIDE + t; }
// How far it lies behind that of pixel 0 and tap 0.
int reach(uint place, uint stride, int step) {
  return STRIDE == 0 ? int(place / TAPS * stride) + int(place % TAPS) * step : int(place);
}

// Row h of the image, from element v of channel word c on.
void load_span(uint image, int h, int v, uint c) {
  const uint row = p.offset[0] / WORD + (image * p.in_h + uint(h)) * p.in_w * p.words + c;
  [[unroll]] for (uint s = 0; s < SPAN; ++s) {
    const int at = v + reach(s, p.stride_w, p.step_w);
    const bool inside = uint(h) < p.in_h && uint(at) < p.in_w;
    const word_vec word = unpack64(x64.data[inside ? row + uint(at) * p.words : p.offset[0] / WORD]);
    span[s] = inside ? word : word_vec(0.0);
  }
}
