//! buffers: x:T:read key:i32:write order:i32:write
//! types: T = f32 f16 i32 u8
//! params: SortParams
//! local: 64
#include "common/numbers.glsl"
#define BLOCK 32

// Maps values to unsigned numbers in the same order.
uint sort_key(uint i) {
#if T_FLOAT
  float x = load_x(i);
  uint bits = x == 0.0 ? 0u : floatBitsToUint(x);
  uint key = is_nan(x) ? 0xffffffffu : (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
#else
  uint key = uint(load_x(i)) ^ 0x80000000u;
#endif
  return p.descending == 1 ? ~key : key;
}

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  uint line = i / p.count * p.count, place = i - line;
  uint first = place - place % BLOCK, last = min(first + BLOCK, p.count);
  uint key = sort_key(i), rank = first;
  for (uint other = first; other < last; ++other) {
    uint k = sort_key(line + other);
    if (k < key || (k == key && other < place)) ++rank;
  }
  store_key(line + rank, int(key));
  store_order(line + rank, int(place));
}
