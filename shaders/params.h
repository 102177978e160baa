// Push-constant structs, included by C++ and by GLSL: one definition, at most 128 bytes each.
// Every struct begins with `offset`, in elements, one per binding in the kernel's order: the
// accessors that the shader generator writes add it, so any view can be bound.
#ifndef REWIND_SHADERS_PARAMS_H
#define REWIND_SHADERS_PARAMS_H

#ifdef __cplusplus
#include <cstdint>
namespace rw::kernels {
using uint = uint32_t;
#endif

#define REWIND_MAX_DIMS 6
// A flat kernel handles this many consecutive elements per thread: threads.x = ceil(n / 8).
// variant `flat` = 1: the tensors are dense. Element offsets that are multiples of 8 are the fast
// case.
#define REWIND_FLAT 8

// ---- elementwise ---------------------------------------------------------------------------
// fill: y[i] = value, given as the bits of a float (f32, f16) or of an int (i32, u8). Flat.
struct FillParams {
  uint offset[1];
  uint n;
  uint bits;
};

// copy: y[...] = cast(x[...]); float to i32 or u8 truncates toward zero, u8 keeps the low 8 bits.
// variant {flat}: 1 = both dense, 8 per thread; else one per thread.
struct CopyParams {
  uint offset[2];
  uint n;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint x_stride[REWIND_MAX_DIMS];
  uint y_stride[REWIND_MAX_DIMS];
};

// unary: y[i] = op(x, a, b), y dense. variant {op, flat}.
struct UnaryParams {
  uint offset[2];
  uint n;
  float a;
  float b;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint x_stride[REWIND_MAX_DIMS];
};

// unary_grad: dx = op'(s) * dy, all dense; s is what the table's row asks for. variant {op}. Flat.
struct UnaryGradParams {
  uint offset[3];  // s, dy, dx
  uint n;
  float a;
  float b;
};

// binary: y = op(a, b), y dense. compare: the same with y u8. variant {op, mode}:
//   mode 0: strided, one element per thread; 1: a and b dense; 2: b repeats with a period of
//   `period` elements (a multiple of 8); 3: b is one element. Modes 1 to 3 are flat.
struct BinaryParams {
  uint offset[3];
  uint n;
  uint period;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint a_stride[REWIND_MAX_DIMS];
  uint b_stride[REWIND_MAX_DIMS];
};

// where: y = c != 0 ? a : b, y dense, one element per thread.
struct WhereParams {
  uint offset[4];  // c, a, b, y
  uint n;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint c_stride[REWIND_MAX_DIMS];
  uint a_stride[REWIND_MAX_DIMS];
  uint b_stride[REWIND_MAX_DIMS];
};

// accumulate: y += a * x (y f32), dense. Flat.
struct AccumulateParams {
  uint offset[2];
  uint n;
  float a;
};

// dropout: y = u(i) < keep ? x / keep : 0, dense; u(i) = (word >> 8) * 2^-24 in [0, 1), word i % 4
// of Philox4x32-10 with key seed and block (counter + i / 4, 0, 0). Its own gradient. Flat.
struct DropoutParams {
  uint offset[2];
  uint n;
  float keep;
  uint seed_lo, seed_hi;
  uint counter_lo, counter_hi;
};

// random: variant {0 uniform in [a, b), 1 normal of mean a and deviation b}. Same words. Normal:
// words (w0, w1) and (w2, w3) of a block each give r cos(t), r sin(t) with r = sqrt(-2 log(1 -
// u0)), t = 2 pi u1. Flat.
struct RandomParams {
  uint offset[1];
  uint n;
  float a, b;
  uint seed_lo, seed_hi;
  uint counter_lo, counter_hi;
};

// ---- reductions ----------------------------------------------------------------------------
// reduce: dense x [outer, count, inner] -> y [outer, inner], times scale (max and min of floats:
// NaN wins; i32 is not scaled). variant {op: 0 sum, 1 max, 2 min, 3 prod; flat}. count <= 32768.
// threads.x = outer * inner, or with flat (inner % 8 == 0) outer * inner / 8.
// reduce_rows: the same for inner == 1 with one workgroup per row: threads.x = outer workgroups.
struct ReduceParams {
  uint offset[2];
  uint outer, count, inner;
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

// softmax over the last axis of [rows, cols]. variant {log}. One workgroup per row.
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

// ---- indexing ------------------------------------------------------------------------------
// flat_index: where the rows lie that `index` names along the middle axis of [outer, rows, inner]:
// y[o, k, i] = (o * rows + index[o, k, i]) * inner + i, -1 where the index is outside [0, rows).
// variant {SHARED}; SHARED 1: index [count] for every o, inner 1. threads.x = n, y's elements.
struct FlatIndexParams {
  uint offset[2];  // index, y
  uint n, count, inner, rows;
};
// sort_blocks: x [lines, count] -> keys that order as unsigned numbers like its values (NaN last,
// -0 as 0; descending 1: the other way round) and `order`, the places that they come from, each
// block of 32 places of a line sorted, equal ones in their order. threads.x = lines * count.
struct SortBlocksParams {
  uint offset[3];  // x, key, order
  uint n, count, descending;
};
// sort_merge: merges neighbouring runs of `run` places, each sorted: those in the first run come
// first among equals. threads.x = n = lines * count.
struct SortMergeParams {
  uint offset[4];  // key, order, merged key, merged order
  uint n, count, run;
};
// sorted_links: index_links from a stable sort of the index: places of equal keys follow each
// other. threads.x = n.
struct SortedLinksParams {
  uint offset[4];  // key, order, next, first
  uint n;
};
// gather: y[i, :] = table[index[i], :]; rows of NaN (integers: -1) where the index is outside [0,
// rows).
// threads.x = ceil(n * width / 8).
struct GatherParams {
  uint offset[3];  // table, index, y
  uint n, width, rows;
};
// index_links: next[i] = smallest j > i with index[j] == index[i], else -1; first[i] = 1 when no
// j < i has it. threads.x = n <= 2^19.
struct IndexLinksParams {
  uint offset[3];  // index, next, first
  uint n;
};
// scatter_add: y[index[i], :] += dy[i, :] in the order of i (walks the links); an index outside
// [0, rows) adds nothing. No index occurs over 2^17 times. variant {MODE}: 0 adds; 1: the last row
// of an index replaces; 2: the same where no index occurs twice, the links are not read.
// threads.x = ceil(n * width / 8).
struct ScatterAddParams {
  uint offset[5];  // dy, index, next, first, y
  uint n, width, rows;
};

// ---- normalisation (x is [rows, channels], channels contiguous) ----------------------------
// batch_norm_stats: partial [chunks, 2, channels] = mean and sum of squared deviations of each
// chunk of chunk_rows rows (<= 32768). threads = {ceil(channels / 8), chunks}.
struct BatchNormStatsParams {
  uint offset[2];
  uint rows, channels, chunk_rows;
};
// batch_norm_combine: Chan's formula over the chunks in order -> mean, biased variance [channels].
// threads.x = channels.
struct BatchNormCombineParams {
  uint offset[3];  // partial, mean, var
  uint rows, channels, chunk_rows, chunks;
};
// A thread takes 8 channels of this many consecutive rows (one load of the channels' values).
#define BATCH_NORM_ROWS 16
// batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias.
// threads.x = ceil(channels / 8) * ceil(rows / BATCH_NORM_ROWS).
struct BatchNormParams {
  uint offset[6];  // x, mean, var, weight, bias, y
  uint n, channels;
  float eps;
};
// batch_norm_grad_stats: partial [chunks, 2, channels] = sum(dy * xhat), sum(dy).
// threads = {ceil(channels / 8), chunks}.
struct BatchNormGradStatsParams {
  uint offset[5];  // x, dy, mean, var, partial
  uint rows, channels, chunk_rows;
  float eps;
};
// batch_norm_grad: sums [2, channels] = sum(dy * xhat), sum(dy).
// dx = weight / sqrt(var + eps) * (dy - train * (sums[1] + xhat * sums[0]) / rows).
// threads as batch_norm.
struct BatchNormGradParams {
  uint offset[7];  // x, dy, mean, var, weight, sums, dx
  uint n, channels, rows;
  float eps;
  uint train;
};

// ---- pooling (NHWC) ------------------------------------------------------------------------
// max_pool2d: y and tap (u8 or i32: which place of its window, row by row, has the first maximum).
// max_pool2d_grad: dy, tap, dx (gathers: each input looks at the windows that cover it).
// avg_pool2d: x, y. avg_pool2d_grad: dy, dx. Eight elements of the last binding's tensor (y for
// max_pool2d) per thread. max: a NaN wins; an empty window gives -inf and tap -1 (255 in u8). avg
// divides by the window's size clipped to the padded input (count_include_pad) or to the input;
// dilation must be 1. variant {adaptive}: 1: window o of an axis is the elements from floor(o * in
// / out) to ceil((o + 1) * in / out), `kernel` no smaller than any (places of the window count by
// it), padding 0, dilation 1, in * out < 2^32. Windows have at most 8191 elements.
struct PoolParams {
  uint offset[3];
  uint batch, in_h, in_w, channels, out_h, out_w;
  uint kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  uint count_include_pad;
};

// ---- other sizes and borders (NHWC) ----------------------------------------------------------
// How an output finds its input positions along an axis (core/ops/vision.h).
#define RESAMPLE_NEAREST 0        // floor(o scale)
#define RESAMPLE_NEAREST_EXACT 1  // floor((o + 1/2) scale)
#define RESAMPLE_LINEAR 2         // the 2 around max(0, (o + 1/2) scale - 1/2), or o scale
#define RESAMPLE_CUBIC 3          // the 4 around (o + 1/2) scale - 1/2, or o scale
// resample2d: x [batch, in_h, in_w, channels] -> y [batch, out_h, out_w, channels];
// resample2d_grad: dy -> dx (gathers: each input looks at the outputs that read it). variant
// {RESAMPLE_*, align, whole}. align 1: o scale, of linear and cubic. whole 1: channels and offsets
// are multiples of 8, 8 channels per thread; else one element per thread. An input is read by at
// most 255 x 255 outputs, or by 65535 along one axis when the other has as many outputs as inputs.
struct ResampleParams {
  uint offset[2];
  uint batch, in_h, in_w, channels, out_h, out_w;
  float scale_h, scale_w;  // input positions per output
};

// What surrounds an axis: PaddingMode without zeros.
#define PAD_REFLECT 1
#define PAD_REPLICATE 2
#define PAD_CIRCULAR 3
// pad_axis: x [outer, size, inner] -> y [outer, padded, inner], x from `before` on. pad_axis_grad:
// dy -> dx (gathers). variant {PAD_*, whole}, whole as in resample2d, of inner. before and after
// are below size for reflect, at most size for circular, at most 32767 for replicate.
struct PadAxisParams {
  uint offset[2];
  uint outer, size, padded, inner, before;
};

// ---- matrix work ---------------------------------------------------------------------------
// matmul: c = alpha * a @ b + beta * c for batch[0] x batch[1] matrices, f32 accumulation.
// a [m, k], b [k, n] with any element strides of which one is 1; c rows are dense in n.
// c is not read when beta == 0.
struct MatmulParams {
  uint offset[3];  // a, b, c
  uint m, n, k;
  uint batch[2];
  uint a_row, a_col, b_row, b_col, c_row;
  uint a_batch[2], b_batch[2], c_batch[2];
  float alpha, beta;
};

// conv2d: x [batch, in_h, in_w, in_c], w [out_c, kernel_h, kernel_w, in_c / groups],
// y [batch, out_h, out_w, out_c], all dense. conv2d_dgrad: dy, w -> dx. conv2d_wgrad: x, dy -> dw
// (f32). Padding is symmetric zeros.
struct Conv2dParams {
  uint offset[3];
  uint batch, in_h, in_w, in_c, out_h, out_w, out_c;
  uint kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  uint groups;
};

// ---- optimizers ----------------------------------------------------------------------------
// Slots of an optimizer's state buffer (f32): everything that decides an update stays on the
// device.
#define STATE_SCALE 0             // loss scale
#define STATE_GOOD 1              // finite updates since the scale last changed
#define STATE_BAD 2               // overflows since the scale last changed
#define STATE_FOUND_INF 3         // 1: this update is skipped
#define STATE_UPDATES 4           // updates done, this one included unless skipped
#define STATE_SKIPPED 5           // updates skipped
#define STATE_LR_FACTOR 6         // schedule's factor on each group's learning rate
#define STATE_GRAD_FACTOR 7       // 1 / scale / weight * clip coefficient
#define STATE_GRAD_NORM 8         // of the unscaled, averaged gradient, before clipping
#define STATE_SKIPPED_IN_A_ROW 9  // updates skipped since the last one that was done
#define STATE_SIZE 16

// Gradients lie anywhere in one range of memory: a table of chunks, each within one parameter, says
// where. i32 [rows, 4]: begin in the parameters and their state, begin in the range of gradients,
// size, parameter; in elements. Size 0: the parameter has no gradient and stays as it is.
#define CHUNK_ROW 4
// grad_stats: partial[c] = sum of squares of the gradient of row c, partial[chunks + c] = 1 if any
// element of it is not finite (bit test), else 0, for the rows from `first` on. One workgroup per
// row.
struct GradStatsParams {
  uint offset[3];  // g, table, partial
  uint first, rows, chunks;
};

#define SCHEDULE_CONSTANT 0
// Factor of update t (from 0; t counts updates done, not skipped ones): (t + 1) / warmup while t <
// warmup, then with progress q = min(1, (t - warmup) / max(1, total - warmup)) and floor f:
#define SCHEDULE_COSINE 1      // f + (1 - f) (1 + cos(pi q)) / 2
#define SCHEDULE_LINEAR 2      // 1 - (1 - f) q
#define SCHEDULE_STEP 3        // gamma ^ floor((t - warmup) / period)
#define SCHEDULE_POLYNOMIAL 4  // f + (1 - f) (1 - q) ^ gamma
#define SCHEDULE_MULTISTEP 5   // gamma ^ number of milestones <= t
// Cosine again and again: q = place in the period / its length; the first has `period` updates,
// each one gamma times those of the one before.
#define SCHEDULE_RESTARTS 6
#define SCHEDULE_NOAM 7  // gamma * min(sqrt(warmup / (t + 1)), (t + 1) / warmup), warm-up included
// Cosine from gamma up to 1 at t = peak, which may lie between two updates, and down to f at total
// - 1. No warm-up.
#define SCHEDULE_ONE_CYCLE 8
#define MOST_MILESTONES 8
// Loss-scale rules: 0 fixed, 1 dynamic. An overflow counts as bad; at `hysteresis` bad ones the
// scale is multiplied by `backoff`; after `interval` finite updates in a row by `growth`.
// keep_bad 1: bad ones add up across finite updates (TensorFlow); 0: a finite update forgets them.
// A scale change resets both counters; the scale stays in [min_scale, max_scale].
// update_prepare: reduces the partials (in order), updates the STATE slots. One thread. The
// gradient factor uses the scale from before this change: the one its gradients were made with.
// Clip coefficient: min(1, max_norm / (norm + 1e-6)). An overflow counts as skipped and leaves
// UPDATES and both factors.
struct UpdatePrepareParams {
  uint offset[2];  // partial, state
  uint chunks;
  float weight;    // sum of the micro-batches' weights: the gradient is divided by it
  float max_norm;  // 0: no clipping
  uint schedule;   // SCHEDULE_*
  uint warmup;     // updates
  uint total;      // updates of the whole schedule, warm-up included
  uint period;
  float floor_factor, gamma;  // gamma: as the schedule says
  float peak;
  uint milestones[MOST_MILESTONES];  // unused ones are 2^32 - 1
  uint dynamic, keep_bad, hysteresis, interval;
  float growth, backoff, min_scale, max_scale;
};

// Updates do nothing when state[FOUND_INF] != 0. g = grad * state[GRAD_FACTOR],
// lr = lr * state[LR_FACTOR]. Rows of the table from `first` on; a row's chunk takes 2^shift
// threads with REWIND_FLAT elements each: threads.x = rows << shift. sgd: g += weight_decay *
// param; buffer = momentum * buffer + (1 - dampening) * g, and g itself in the first update
// (state[UPDATES] == 1); param -= lr * (nesterov ? g + momentum * buffer : buffer). maximize
// negates the gradient before the decay.
struct SgdParams {
  uint offset[5];  // param, grad, momentum (rw; bound to param when momentum == 0), table, state
  uint first, rows, shift;
  float lr, momentum, dampening, weight_decay;
  uint nesterov, maximize;
};
// adam: with t = state[UPDATES], m and v the moving means of g and g^2:
// param -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps). Weight decay is added to
// g, or with `decoupled` (AdamW) param *= 1 - lr * weight_decay before the step.
struct AdamParams {
  uint offset[6];  // param, grad, m, v, table, state
  uint first, rows, shift;
  float lr, beta1, beta2, eps, weight_decay;
  uint decoupled;
};

// moment_update: the same, variant {MOMENT_*}, for rules with up to three states. Those that a rule
// does not have are bound to param and not touched.
// rmsprop: g += weight_decay * param; first = a * first + (1 - a) * g^2; with flags 1 (centered)
// third = a * third + (1 - a) * g and v = max(0, first - third^2), else v = first; u = g / (sqrt(v)
// + eps); b != 0: u = second = b * second + u; param -= lr * u.
#define MOMENT_RMSPROP 0
// adagrad: g += weight_decay * param; first += g^2; param -= lr / (1 + (t - 1) * a) * g /
// (sqrt(first) + eps).
#define MOMENT_ADAGRAD 1
// lion: param *= 1 - lr * weight_decay; param -= lr * sign(a * first + (1 - a) * g); first = b *
// first + (1 - b) * g.
#define MOMENT_LION 2
// amsgrad: adam with m = first, v = second, betas a and b, and third, the largest v so far, in v's
// place; flags 1: decoupled.
#define MOMENT_AMSGRAD 3
struct MomentUpdateParams {
  uint offset[7];  // param, grad, first, second, third, table, state
  uint first, rows, shift;
  float lr, weight_decay, a, b, eps;
  uint flags;
};

// muon_momentum: of a parameter's dense grad, buffer and update: buffer += (1 - momentum) * (g -
// buffer), update = buffer, or with nesterov g + momentum * (buffer - g), the new buffer. Where
// state[FOUND_INF] != 0 the buffer stays and update is 0. Flat.
struct MuonMomentumParams {
  uint offset[4];  // grad, buffer, update, state
  uint n;
  float momentum;
  uint nesterov;
};
// muon: param = param * (1 - lr * weight_decay) - lr * ratio * update. Flat.
struct MuonParams {
  uint offset[3];  // param, update, state
  uint n;
  float lr, weight_decay, ratio;
};

// Adafactor, of one parameter at a time, dense [matrices, rows, cols]. With w = t ^ beta2_decay, t
// = state[UPDATES], mean squares of the gradient go into its states: x += w * (mean - x).
// adafactor_rows: row_var [matrices, rows], over the columns. One workgroup per row.
// adafactor_columns: partial [matrices, chunks, cols] = sum of squares of each chunk of
// ADAFACTOR_ROWS rows. threads.x = elements of partial.
// adafactor_combine: col_var [matrices, cols] from these. threads.x = elements of col_var.
// adafactor_norms: partial [2, chunks] = sums of squares of the parameter and of its update u = g /
// sqrt(max(v, eps1^2)) in each chunk of ADAFACTOR_CHUNK elements. variant {factored}: 1: v =
// row_var
// * col_var / max(mean, eps1), mean [matrices] of row_var; 0: v is row_var [elements], which takes
// in g^2 first. One workgroup per chunk.
// adafactor: param = param * (1 - lr * weight_decay) - rate / max(1, rms(u) / clip) * u with rate =
// min(lr, 1 / sqrt(t)) (flags & 1), else lr, times max(eps2, rms(param)) (flags & 2). As
// adafactor_norms.
#define ADAFACTOR_ROWS 64
#define ADAFACTOR_CHUNK 16384
#define ADAFACTOR_RELATIVE 1
#define ADAFACTOR_SCALED 2
struct AdafactorMomentParams {
  uint offset[3];  // rows: grad, row_var, state; columns: grad, partial; combine: partial, col_var,
                   // state
  uint matrices, rows, cols, chunks;
  float beta2_decay;
};
struct AdafactorParams {
  uint offset[7];  // param, grad, row_var, col_var, mean, state, partial
  uint n, rows, cols, chunks;
  float lr, weight_decay, beta2_decay, eps1, eps2, clip;
  uint flags;
};

// ---- parts of matmul and conv2d (issued by backends/vulkan/matrix*, never by an op) ----------
// gemm_subgroup, gemm_tiled: c[s] = alpha * a[:, ks] @ b[ks, :], in variants that add + beta *
// c[s], for `batches` matrices and the ranges of k, ks, of `splits` parts of k_chunk each. One
// workgroup per tile, part and matrix. gemm_subgroup, variant {lanes across columns, pairs, a
// transposed, b transposed}: a is [m, k] or [k, m] as stored, b [k, n] or [n, k]; offsets and row
// and batch steps are multiples of 4 (a not transposed: of 2, for f32 of 1). b [k, n] may lie in
// panels of one tile's columns, b_panel elements apart, and a [k, m] in panels of one tile's rows;
// plain ones are panels a tile's width apart. gemm_tiled: any strides; one of row and col is 1.
struct GemmParams {
  uint offset[3];  // a, b, c
  uint m, n, k;
  uint k_chunk, splits, batches;
  uint batch_inner;                 // batch[1] of MatmulParams
  uint a_row, a_col, b_row, b_col;  // element strides
  uint c_row;
  uint a_batch[2], b_batch[2], c_batch[2];
  uint a_panel, b_panel;
  uint c_split;  // elements from part to part
  float alpha, beta;
};

// matrix_pack: y [batches, panels, rows, panel] = x [batches, rows, cols] with any strides, `panel`
// columns in each panel, zeros past the last. panel is a multiple of 4; one thread per 4 elements.
struct MatrixPackParams {
  uint offset[2];
  uint n;  // threads: elements of y / 4
  uint rows, cols, panel;
  uint batch_inner, x_batch[2], x_row, x_col;
};

// matrix_reduce: y[z, i, j] = beta * y + alpha * sum over parts, in order, of
// x[part * x_split + z * x_batch + i * x_i + j / inner * x_outer + j % inner * x_inner].
struct MatrixReduceParams {
  uint offset[2];
  uint n;  // elements of y
  uint rows, cols, parts, x_split, x_batch, x_i, inner, x_outer, x_inner;
  uint batch_inner, y_batch[2], y_row;
  float alpha, beta;
};

// Implicit matrix product of a convolution. Row (image, i, j) of the left matrix is read from x
// [images, in_h, in_row] in taps_h x taps_w runs of `run` elements, the first at
// (i * stride_h + origin_h, j * stride_w + origin_w), the next step_h, step_w further; zero where
// outside the image. Horizontal measures are in elements, not pixels.
// conv_subgroup: y = x @ w; w [taps, run rounded up, w_row] as conv_pack writes it; row (image, i,
// j) of y begins at image * y_image + i * y_h + j * y_w; n columns. Groups: z-th group's parts
// begin z * x_group, z * w_group, z * y_group further. conv_wgrad_subgroup: y = x^T @ w for w
// [rows, n], w_row elements apart: y [taps * run, y_w], part s of k_chunk rows at s * y_image,
// zeros where there is no pixel. Variant of both {lanes, pairs}.
struct ConvTileParams {
  uint offset[3];  // x, w, y
  uint images, rows_h, rows_w;
  uint in_h, in_row;
  uint stride_h, stride_w;
  int origin_h, origin_w;
  uint taps_h, taps_w;
  int step_h, step_w;
  uint run, w_row, n;
  uint y_image, y_h, y_w;
  uint groups, x_group, w_group, y_group;
  uint k_chunk, splits;
};

// conv_pack: w of conv2d as the right matrix of conv_subgroup: y [groups, taps_h, taps_w, tap_rows,
// y_row]; row e of a tap is channel e % channels of its (e / channels)-th pixel, y column n is
// output n: x[group * x_group + n * x_n + channel * x_c + kh * x_kh + kw * x_kw], zero past run, n
// and x_channels.
struct ConvPackParams {
  uint offset[2];
  uint total;  // elements of y / 4: threads
  uint taps_h, taps_w, tap_rows, run, channels, x_channels, n, y_row;
  int kh0, kh_step, kw0, kw_step;
  uint x_group, x_n, x_c, x_kh, x_kw;
};

// conv_direct, conv_dgrad_direct: conv2d and conv2d_dgrad, one element of the result per thread.
// conv_wgrad_direct: partial sums [parts, dw] over line_chunk lines of all images' outputs each,
// one element of one part per thread. With a group per channel, channels and images' offsets
// multiples of 8: conv_depthwise, variant {gradient}: conv2d or conv2d_dgrad, w as [taps,
// channels]; 8 channels of 4 pixels beside each other per thread. conv_depthwise_wgrad: partial
// sums [parts, taps, channels], 8 channels of 3 taps beside each other of one part per thread.
struct ConvDirectParams {
  uint offset[3];
  uint batch, in_h, in_w, in_c, out_h, out_w, out_c;
  uint kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  uint groups;
  uint n;  // threads
  uint line_chunk;
};

// ---- row normalisation (x is [rows, cols]) ---------------------------------------------------
// layer_norm: y = (x - mean) * rstd * weight + bias per row; stats [rows, 2] = mean, rstd with
// rstd = 1 / sqrt(biased variance + eps). variant {rms}: 1: mean is 0, rstd = 1 / sqrt(mean(x^2) +
// eps) and bias is not added. One workgroup per row. cols <= 2^16.
struct LayerNormParams {
  uint offset[5];  // x, weight, bias, y, stats
  uint rows, cols;
  float eps;
};
// layer_norm_grad: with g = weight * dy and xhat = (x - mean) * rstd:
// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g) in variant {rms}. As
// layer_norm.
struct LayerNormGradParams {
  uint offset[5];  // x, dy, weight, stats, dx
  uint rows, cols;
};
// layer_norm_grad_stats: partial [chunks, 2, cols] = sum(dy * xhat), sum(dy) over the rows of each
// chunk of chunk_rows rows (<= 32768). variant {flat}: 1: cols and the offsets of x and dy are
// multiples of 8. threads = {ceil(cols / 8), chunks}.
struct LayerNormGradStatsParams {
  uint offset[4];  // x, dy, stats, partial
  uint rows, cols, chunk_rows;
};

// ---- group normalisation (x is [samples, rows, channels]; a group is `width` channels side by
// side) ---- A thread has 8 channels of some rows of one sample, of the last three kernels this
// many. variant {whole} of the four that read x: 1: channels and the offsets of all tensors of
// channels are multiples of 8.
#define GROUP_NORM_ROWS 16
// group_norm_stats: moments [samples, groups, blocks, 3] = count, mean and sum of squared
// deviations of blocks of chunk_rows rows (<= 32768; the last ones may be short) and `merged`
// channels (1, 2, 4 or 8; it divides width). A group's blocks are in the order of rows, then
// channels. threads.x = samples * ceil(rows / chunk_rows) * ceil(channels / 8).
struct GroupNormStatsParams {
  uint offset[2];
  uint samples, rows, channels, width, chunk_rows, merged;
};
// group_norm_combine: Chan's formula over runs of up to GROUP_NORM_BLOCKS of the `blocks` moments
// of each group, in order. variant {last}: 0: combined [groups, runs, 3], moments again; 1, when
// there is one run: [groups, 2] = mean, 1 / sqrt(biased variance + eps). threads.x = groups * runs.
#define GROUP_NORM_BLOCKS 64
struct GroupNormCombineParams {
  uint offset[2];  // moments, combined
  uint groups, blocks;
  float eps;
};
// group_norm: y = (x - mean) * rstd * weight + bias with stats [samples, groups, 2] = mean, rstd.
// threads.x = samples * ceil(rows / GROUP_NORM_ROWS) * ceil(channels / 8).
struct GroupNormParams {
  uint offset[5];  // x, stats, weight, bias, y
  uint samples, rows, channels, width;
};
// group_norm_grad_stats: partial [samples, chunks, 2, channels] = sum(dy * xhat), sum(dy) over the
// rows of each chunk. threads as group_norm_stats.
struct GroupNormGradStatsParams {
  uint offset[4];  // x, dy, stats, partial
  uint samples, rows, channels, width, chunk_rows;
};
// group_norm_grad: from sums [samples, 2, groups] = sum(g * xhat), sum(g) over the group, g =
// weight * dy: dx = rstd * (g - (sums[1] + xhat * sums[0]) / (rows * width)). threads as
// group_norm.
struct GroupNormGradParams {
  uint offset[6];  // x, dy, stats, weight, sums, dx
  uint samples, rows, channels, width;
};

// ---- recurrent cells: one step -----------------------------------------------------------------
// variant {whole}: 1: hidden and all offsets are multiples of 4. threads.x = rows * hidden, with
// whole a quarter of that. lstm_cell: a = gx + gh + bias [rows, 4 hidden]; i, f, g, o = sigmoid,
// sigmoid, tanh, sigmoid of its quarters; c = f * c_prev + i * g; h = o * tanh(c); acts = i, f, g,
// o. gru_cell: r, z = sigmoid(gx + gh + bias) of the first two thirds of [rows, 3 hidden]; q = gh +
// bias of the last; n = tanh(gx + r * q); h = (1 - z) * n + z * h_prev; acts [rows, 4 hidden] = r,
// z, n, q.
struct CellParams {
  uint offset[7];  // gx, gh, bias, c_prev, h, c, acts; gru: gx, gh, bias, h_prev, h, acts
  uint rows, hidden;
};
// lstm_cell_grad: from d = dy + dh and dc (in place: that of c becomes that of c_prev) to dgates,
// the gradient of gx and gh. gru_cell_grad: the same with carry in dc's place: d = dy + dh + carry,
// and carry becomes d * z, the part of h_prev's gradient that does not go through gh.
struct CellGradParams {
  uint
      offset[7];  // acts, c_prev, c, dy, dh, dc, dgates; gru: acts, h_prev, dy, dh, carry, dgx, dgh
  uint rows, hidden;
};

// ---- LAMB and averages of parameters -----------------------------------------------------------
// lamb_norms: moves m and v of the table's rows from `first` on; partial [2, chunks], from `part`
// on = sums of squares of the parameter and of its update u = m / (1 - beta1^t) / (sqrt(v / (1 -
// beta2^t)) + eps) + weight_decay * param. lamb: param -= lr * ratio[parameter] * u. One workgroup
// per row. Nothing happens when state[FOUND_INF] != 0.
struct LambParams {
  uint offset[7];  // param, grad, m, v, table, state, partial; lamb: param, m, v, table, ratio,
                   // state
  uint first, rows, part, chunks;
  float lr, beta1, beta2, eps, weight_decay;
};
// lamb_ratio: ratio [parameters] = norm of the parameter / norm of u, 1 where one of them is 0 or
// `adapt` is 0. first [parameters + 1] (i32): first chunk of each. threads.x = parameters.
struct LambRatioParams {
  uint offset[4];  // partial, first, state, ratio
  uint parameters, chunks;
  uint adapt;
};
// ema: unless state[FOUND_INF] != 0, at every `every`-th update since the average began, average +=
// rate * (param - average). With k such updates so far, this one included, from (state[UPDATES] -
// start[0]) / every: rate = 1 - decay (AVERAGE_DECAY), (1 - decay) / (1 - decay^k)
// (AVERAGE_CORRECTED), or 1 / k (AVERAGE_EQUAL). Flat.
#define AVERAGE_DECAY 0
#define AVERAGE_CORRECTED 1
#define AVERAGE_EQUAL 2
struct EmaParams {
  uint offset[4];  // average, param, start, state
  uint n;
  float decay;
  uint kind;  // AVERAGE_*
  uint every;
};
// lookahead: at the same updates as ema, slow += alpha * (param - slow), and param = slow. Flat.
struct LookaheadParams {
  uint offset[4];  // slow, param, start, state
  uint n;
  float alpha;
  uint every;
};

// ---- attention -------------------------------------------------------------------------------
// Over each head: scores[i, j] = scale * q[i] . k[j] + mask[i, j] for the keys j < lengths[b] that
// lie less than `window` behind the query, behind = i - j (i + keys - queries - j where
// LOWER_RIGHT), and 0 or more when causal, else more than -window. P = softmax over j; out[i] = sum
// of P[i, j] * kept[i, j] / keep * v[j]. `group` query heads in a row share a head of k and v. With
// ALIBI the mask is one slope per head: -slope * |behind| is added. Scores below ATTENTION_NO_SCORE
// do not count; a row without any is zero. kept: word j % 4 of the Philox block (counter, 1 + (b *
// heads + h) * queries + i, j / 4) below keep, as in dropout. Rows of q, k, v and mask are dense,
// their other strides are the call's; offsets and strides of q, k, v are multiples of 4, dim of 8.
// out, dout, dq [batch, queries, heads, dim]; lse [batch, heads, queries].
#define ATTENTION_CAUSAL 1
#define ATTENTION_MASK 2
#define ATTENTION_LENGTHS 4
#define ATTENTION_ALIBI 8
#define ATTENTION_LOWER_RIGHT 16
// What is packed into AttentionParams.head.
#define ATTENTION_HEAD(dim, flags, group) ((dim) | (flags) << 9 | (group) << 16)
#define ATTENTION_DIM(p) ((p).head & 0x1ffu)
#define ATTENTION_FLAGS(p) ((p).head >> 9 & 0x7fu)
#define ATTENTION_GROUP(p) ((p).head >> 16)
#define ATTENTION_NO_SCORE -1e38f
#define ATTENTION_PER_LANE 4  // columns of scores
// Variant of all {masked, rows, width}: a subgroup makes `rows` rows (16 at most) of the
// result by width columns per lane; threads.x = subgroup size * batch * heads * row tiles * column
// tiles. attention: q, k, v, mask, lengths, out, lse. Mask and lengths are read where the flags say
// so. lse is the scores' log-sum-exp, -ATTENTION_NO_SCORE for rows without any. attention_dq: q, k,
// v, dout, stats, mask, lengths, dq. With dP = dout . v * kept / keep, dS = P * (dP - delta):
// dq[i] = sum of scale * dS[i, j] k[j]. attention_dkv: q, k, v, dout, stats, mask, lengths, dkv [2,
// batch, keys, heads / group, dim]: first dk[j] = sum of scale * dS[i, j] q[i], then dv[j] = sum of
// P[i, j] kept / keep * dout[i], over the queries of all heads of the group. attention_dmask: q, k,
// v, dout, stats, mask, lengths, dmask [batch, heads, queries, keys]: the sum of dS[i, j] over the
// axes where mask_stride is 0, which have size 1; where that of rows is 0, over the rows alone:
// [batch, heads, 1, keys]. Its tiles are `rows` rows by four columns per lane.
struct AttentionParams {
  uint offset[8];
  uint batch, heads, queries, keys;
  uint head;                                   // ATTENTION_HEAD(dim, ATTENTION_*, group)
  uint window;                                 // queries + keys: all
  uint q_stride[3], k_stride[3], v_stride[3];  // of batch, head, row
  uint mask_stride[3];
  float scale, keep;  // keep 1: no dropout
  uint seed_lo, seed_hi, counter_lo, counter_hi;
};
// attention_delta: stats [batch, heads, queries, 2] = lse, delta = sum of out * dout.
// threads.x = batch * heads * queries.
struct AttentionDeltaParams {
  uint offset[4];  // out, dout, lse, stats
  uint rows, heads, queries, dim;
};

// ---- losses
// ---------------------------------------------------------------------------------------
// pair_loss: y[i] = f(x[i], t[i]), dense; weighted: weight[i % period] is the positive class's.
// variant {LOSS_*, weighted}. Flat.
// pair_loss_grad: out = dy * the derivative of f by x, or with wrt 1 by t; dy_one 1: dy is one
// element. variant {LOSS_*, weighted, wrt}. Flat.
#define LOSS_MSE 0         // (x - t)^2
#define LOSS_L1 1          // |x - t|
#define LOSS_SMOOTH_L1 2   // d = |x - t|: d < a ? d^2 / (2 a) : d - a / 2
#define LOSS_HUBER 3       // d < a ? d^2 / 2 : a (d - a / 2)
#define LOSS_BCE 4         // -t max(log x, -100) - (1 - t) max(log(1 - x), -100)
#define LOSS_BCE_LOGITS 5  // (1 - t) x + (1 + (weight - 1) t) log(1 + exp(-x))
#define LOSS_KL 6          // t (log t - x), 0 where t is 0
#define LOSS_KL_LOG 7      // exp(t) (t - x)
// With p = sigmoid(x) and q = p (1 - t) + (1 - p) t: BCE_LOGITS * q^b, for a >= 0 times a t + (1 -
// a) (1 - t).
#define LOSS_FOCAL 8
struct PairLossParams {
  uint offset[4];  // x, t, weight, y
  uint n, period;
  float a, b;
};
struct PairLossGradParams {
  uint offset[5];  // x, t, weight, dy, out
  uint n, period, dy_one;
  float a, b;
};
// nll_loss: loss[row] = -x[row, target[row]]; 0 where target == ignore_index, NaN where it is
// outside [0, cols). threads.x = rows.
// nll_loss_grad: dx = -dloss[row] at the target, 0 elsewhere; NaN in rows whose target is outside.
// Flat over rows * cols.
struct NllLossParams {
  uint offset[3];  // x, target, loss; grad: target, dloss, dx
  uint rows, cols;
  int ignore_index;
};
// soft_cross_entropy: per row, of target distributions p (i32 target: 1 at the class), p' = (1 - s)
// p
// + s / cols and weight w (1 unless weighted): loss = sum of w p' (lse - x), mass = sum of w p'.
// i32: loss and mass are 0 where target == ignore_index, NaN where it is outside [0, cols). variant
// {weighted}. One workgroup per row.
// soft_cross_entropy_grad: dx = dloss[row] * (mass * softmax - w p'). variant {weighted}. Flat over
// rows * cols.
struct SoftCrossEntropyParams {
  uint offset[6];  // x, target, weight, loss, lse, mass
  uint rows, cols;
  float smoothing;
  int ignore_index;
};
struct SoftCrossEntropyGradParams {
  uint offset[7];  // x, target, weight, lse, mass, dloss, dx
  uint rows, cols;
  float smoothing;
  int ignore_index;
};

// ---- positions -------------------------------------------------------------------------------
// rotary: x of any strides, y dense, [batch, heads, rows, dim]. The pair i of a row s, elements
// (2 i, 2 i + 1) or else (i, i + dim / 2), turns by (first + s) * theta^(-2 i / dim) radians, or
// as far back. threads.x = pairs.
struct RotaryParams {
  uint offset[2];  // x, y
  uint heads, rows, dim, pairs;
  uint x_stride[4];
  uint first;
  uint interleaved, backward;
  float log2_step;  // log2(theta) * 2 / dim
};

#ifdef __cplusplus
}  // namespace rw::kernels
#endif
#endif
