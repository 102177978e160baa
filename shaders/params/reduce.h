// Reductions and softmax.

// reduce: dense x [outer, count, inner] -> y [outer, ceil(count / chunk), inner], one result for
// each chunk of places, of which the last one may be shorter, times scale. For max and min of
// floats a NaN wins; i32 is not scaled. The variant is {op}: 0 sum, 1 max, 2 min, 3 prod.
//
// Vulkan devices run these two instead, with chunks of up to 32768, on as many levels as needed:
//
// reduce_columns: the variant is {op, flat, team}. A thread computes one result, or 8 with flat 1
// (inner % 8 == 0). With team REDUCE_TEAM or LARGE_TEAM instead of 1, so many threads take turns
// along a chunk.
//
// reduce_rows: one workgroup per result, for inner == 1.
#define REDUCE_TEAM 8
#define LARGE_TEAM 32
//
// argreduce: the index (i32) of the first maximum or minimum along count. The variant is 0 for max,
// 1 for min. A NaN counts as the maximum (minimum). threads.x = outer * inner. count <= 2^18.
//
// Vulkan devices may have ARG_TEAM threads take turns along count: the variant is {min, team}, and
// threads.x team times as many.
#define ARG_TEAM 64
struct ReduceParams {
  uint offset[2];
  uint outer, count, inner;
  uint chunk;   // not of argreduce
  float scale;  // the same
};

// scan: running sums (OP 0), products (OP 1) or logarithms of sums of exp (OP 2, floats) over the
// middle axis of [outer, count, inner]. The axis is cut into `chunks` parts of `chunk` places; the
// last one may be shorter. With reverse 1, places count from the end of the axis.
//
// The variant is {OP, CARRY, TOTALS}. With TOTALS 1, y [outer, chunks, inner] is the sum of each
// part. Otherwise y [outer, count, inner] is the sum of a part up to each place; with CARRY 1 it
// also includes carry [outer, chunks, inner] of the part before. The sums of parts of f16 are f32.
// threads.x = outer * chunks * inner.
struct ScanParams {
  uint offset[3];  // x, carry, y
  uint outer, count, inner;
  uint chunk, chunks, reverse;
};

// softmax over the last axis of [rows, cols]. variant {log}.
//
// softmax_grad: from y and dy. softmax: dx = y (dy - sum(y dy)); log: dx = dy - exp(y) sum(dy).
struct SoftmaxParams {
  uint offset[3];  // x, y; grad: y, dy, dx
  uint rows, cols;
};
