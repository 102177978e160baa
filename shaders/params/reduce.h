// Reductions and softmax.

// reduce: dense x [outer, count, inner] -> y [outer, ceil(count / chunk), inner], a result for each
// chunk of places, the last one may be short; times scale (max and min of floats: NaN wins; i32 is
// not scaled). variant {op: 0 sum, 1 max, 2 min, 3 prod}. On Vulkan devices it is made by the next
// two, of chunks of up to 32768, in as many levels as it takes.
// reduce_columns: variant {op; flat; team}. A thread per result, or with flat (inner % 8 == 0) for
// 8 of them, each of which may be a team of REDUCE_TEAM (else 1) that takes turns along a chunk.
// reduce_rows: the same for inner == 1 with one workgroup per result.
#define REDUCE_TEAM 8
struct ReduceParams {
  uint offset[2];
  uint outer, count, inner, chunk;
  float scale;
};

// argreduce: index (i32) of the first max/min along count. variant {0 max, 1 min}.
// A NaN is larger (smaller) than every number. threads.x = outer * inner. count <= 2^18.
struct ArgReduceParams {
  uint offset[2];
  uint outer, count, inner;
};

// scan: running sums (OP 0), products (1) or logarithms of sums of exp (2, floats) over the middle
// axis of [outer, count, inner]. The axis is cut into `chunks` parts of `chunk` places, the last
// may be shorter; reverse 1: places count from its end. variant {OP, CARRY, TOTALS}. TOTALS 1: y
// [outer, chunks, inner] is each part's sum. Else y [outer, count, inner] is the sum of a part up
// to each place, and with CARRY 1 plus carry [outer, chunks, inner] of the part before. Those of
// f16 are f32. threads.x = outer * chunks * inner.
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
