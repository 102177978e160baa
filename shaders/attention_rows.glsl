// Kernels whose rows are queries and whose columns are keys.

// kept_bits: bit 4 i + j is row i by this lane's key `key` + j.
#define ROW_DRAW(n) draw(w, w.row + n, key)
void draw_rows(Work w, uint key) { DRAW_TILE(ROW_DRAW) }

// Butterflies. The loops count by ones, up to subgroups of 128: older drivers unroll no others.
float highest_in_subgroup(float x) {
  [[unroll]] for (uint bit = 0; bit < 7; ++bit)
    if (1u << bit < LANES) x = max(x, subgroupShuffle(x, lane ^ (1u << bit)));
  return x;
}

float sum_of_subgroup(float x) {
  [[unroll]] for (uint bit = 0; bit < 7; ++bit)
    if (1u << bit < LANES) x += subgroupShuffle(x, lane ^ (1u << bit));
  return x;
}
