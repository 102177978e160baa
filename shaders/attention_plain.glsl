// Attention where a device has no subgroup shuffle or no buffer addresses: a thread makes four elements
// of a row of the result, and for them all scores of that row. Slow, and right on every device.
#include "attention_keys.glsl"

// Four elements of a result [batch, rows, heads, dim].
struct Work {
  uint batch, head, row, column;
};

uint words_of(uint rows, uint heads) { return p.batch * rows * heads * (DIM / 4); }

Work find_work(uint word, uint rows, uint heads) {
  const uint row = word / (DIM / 4);  // of [batch, rows, heads]
  return Work(row / heads / rows, row % heads, row / heads % rows, word % (DIM / 4) * 4);
}

uint row_at(Work w, uint stride[3], uint row) {
  return w.batch * stride[0] + w.head * stride[1] + row * stride[2];
}
uint shared_row_at(Work w, uint stride[3], uint row) {
  return w.batch * stride[0] + w.head / GROUP * stride[1] + row * stride[2];
}
uint dense_row(Work w, uint rows, uint row) { return ((w.batch * rows + row) * p.heads + w.head) * DIM; }

// Over the words of a head's dimension: BODY(d). Few rounds, as stock lavapipe leaves all loops after
// 65535 (docs/kernels.md), and by ones, as it unrolls no other loops.
#define FOR_WORDS(BODY)                              \
  for (uint first = 0; first < DIM; first += 32) { \
    [[unroll]] for (uint u = 0; u < 8; ++u)          \
      if (first + u * 4 < DIM) {                   \
        BODY(first + u * 4)                          \
      }                                              \
  }

// The score of a product, LOWEST for one that does not count. Not-a-number stays.
float score(Work w, uint query, uint key, float product) {
  float s = product * p.scale;
  const int distance = behind(query, key);
  if (MASKED)
    s += load_mask(row_at(w, p.mask_stride, query) + mask_column(key)) * mask_factor(distance);
  return s < ATTENTION_NO_SCORE ? LOWEST : s;
}

// sum += x, with what was lost so far (Kahan 1965): a row may have many keys.
void add(inout vec4 sum, inout vec4 lost, vec4 x) {
  precise vec4 y = x - lost, next = sum + y;
  precise vec4 rest = (next - sum) - y;
  lost = rest;
  sum = next;
}

// x after dropout of the weight of this query and key.
float drop(Work w, uint query, uint key, float x) {
  if (p.keep == 1.0) return x;
  const uint row = 1 + (w.batch * p.heads + w.head) * p.queries + query;
  const uvec4 words = philox(uvec4(p.counter, 0, row, key / 4), uvec2(p.seed_lo, p.seed_hi));
  return uniform_from(words)[key % 4] < p.keep ? x / p.keep : 0.0;
}
