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
struct ReduceParams {
  uint offset[2];
  uint outer, count, inner, chunk;
  float scale;
};

// argreduce: the index (i32) of the first maximum or minimum along count. The variant is 0 for max,
// 1 for min. A NaN counts as the maximum (minimum). threads.x = outer * inner. count <= 2^18.
//
// Vulkan devices may have ARG_TEAM threads take turns along count: the variant is {min, team}, and
// threads.x team times as many.
#define ARG_TEAM 64
struct ArgReduceParams {
  uint offset[2];
  uint outer, count, inner;
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
struct SoftmaxParams {
  uint offset[2];
  uint rows, cols;
};
// softmax_grad: from y and dy. softmax: dx = y (dy - sum(y dy)); log: dx = dy - exp(y) sum(dy).
struct SoftmaxGradParams {
  uint offset[3];  // y, dy, dx
  uint rows, cols;
};

// cross_entropy: per row (1-s)(lse - x[t]) + s(lse - mean(x)); 0 where t == ignore_index; NaN where
// t is outside [0, cols). Outputs loss and lse [rows]. One workgroup per row.
struct CrossEntropyParams {
  uint offset[4];  // logits, target, loss, lse
  uint rows, cols;
  float smoothing;
  int ignore_index;
};
// cross_entropy_grad: dlogits = dloss[row] * (softmax - (1-s) onehot - s/cols); 0 where ignored,
// NaN where t is outside [0, cols). threads.x = ceil(rows * cols / 8).
struct CrossEntropyGradParams {
  uint offset[5];  // logits, target, lse, dloss, dlogits
  uint rows, cols;
  float smoothing;
  int ignore_index;
};
