// The scores that an element of the mask's gradient sums, along rows, or along batch and heads.
#define SUMS_ROWS (p.mask_stride[2] == 0)
bool sums_batch() { return !SUMS_ROWS && p.mask_stride[0] == 0; }
bool sums_heads() { return !SUMS_ROWS && p.mask_stride[1] == 0; }
uint batches_kept() { return sums_batch() ? 1 : p.batch; }
uint heads_kept() { return sums_heads() ? 1 : p.heads; }

// The terms of a sum, and the place of each; `rows` counts rows, or tiles of them.
uint terms(uint rows) {
  return SUMS_ROWS ? rows : (sums_batch() ? p.batch : 1) * (sums_heads() ? p.heads : 1);
}
uint term_batch(uint batch, uint n) { return sums_batch() ? n / (sums_heads() ? p.heads : 1) : batch; }
uint term_head(uint head, uint n) { return sums_heads() ? n % p.heads : head; }
