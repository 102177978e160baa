// The rules of masks and keys for all attention kernels.
#include "common/numbers.glsl"
#include "common/philox.glsl"

layout(constant_id = 0) const bool MASKED = false;
#define DIM ATTENTION_DIM(p)
#define GROUP ATTENTION_GROUP(p)
#define HAS(flag) ((ATTENTION_FLAGS(p) & (flag)) != 0)
#define LOWEST (3.0 * ATTENTION_NO_SCORE)  // for a score that does not count

// Returns the number of keys that count for any query of the batch element.
uint key_count(uint batch) {
  return HAS(ATTENTION_LENGTHS) ? min(p.keys, uint(max(0, load_lengths(batch)))) : p.keys;
}

// Distances are how far the key lies behind the query. Those from `nearest` to less than the window count.
int shift() { return HAS(ATTENTION_LOWER_RIGHT) ? int(p.keys) - int(p.queries) : 0; }
int behind(uint query, uint key) { return int(query) + shift() - int(key); }
int nearest() { return HAS(ATTENTION_CAUSAL) ? 0 : 1 - int(p.window); }
bool is_seen(int distance) { return distance >= nearest() && distance < int(p.window); }

// Returns the first key at which the query may look.
int start(uint batch, uint query) {
  return HAS(ATTENTION_STARTS) ? load_lengths(batch * p.queries + min(query, p.queries - 1)) : 0;
}

// The keys [begin, end), of `count`, at which any of `rows` queries from `row` on look. Starts do not decrease.
uint key_begin(uint batch, uint row) {
  return uint(max(max(0, start(batch, row)), int(row) + shift() - int(p.window) + 1));
}
uint key_end(uint row, uint rows, uint count) {
  return uint(clamp(int(row + rows) + shift() - nearest(), 0, int(count)));
}
// The queries that look at any of `rows` keys from `row` on.
uint query_begin(uint row) { return uint(max(0, int(row) - shift() + nearest())); }
uint query_end(uint batch, uint row, uint rows) {
  const uint end = uint(clamp(int(row + rows) - 1 - shift() + int(p.window), 0, int(p.queries)));
  if (!HAS(ATTENTION_STARTS)) return end;
  // The first query that starts after these keys.
  uint low = min(query_begin(row), end), high = end;
  while (low < high) {
    const uint middle = (low + high) / 2;
    if (start(batch, middle) < int(row + rows))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Returns the gradient of a score from that of its weight; 0 for a score that does not count, whatever its key holds.
float score_gradient(float weight, float dweight, float delta) {
  return weight == 0.0 ? 0.0 : weight * (dweight - delta);
}

// Returns the logarithm of a row's sum of exp(score), from its largest score and its sum of exp(score - largest).
// Without keys it is so large that all weights are 0. Drivers' log(NaN) may be a number.
float log_sum(float top, float total) {
  return total == 0.0 ? -ATTENTION_NO_SCORE : is_nan(total) ? total : top + log(total);
}

// The mask adds to a score its element there, or the slope of the head.
uint mask_column(uint key) { return HAS(ATTENTION_ALIBI) ? 0 : key; }
float mask_factor(int distance) { return HAS(ATTENTION_ALIBI) ? -abs(float(distance)) : 1.0; }
