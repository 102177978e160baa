// Batch, layer and group normalisation.

// ---- batches (x is [rows, channels], channels contiguous) -------------------------------------
// A kernel reads what concerns it. The gradients' xhat is (x - mean) / sqrt(var + eps).
//
// `var` is NORM_SCALE^2 times the variance. Where elements differ little from a large mean, its
// rounding would count: with has_rest 1, `mean` is [2, channels], the means and what their rounding
// leaves; with 0 it is [channels].
// batch_norm_stats: mean and biased variance of each channel, and both [2, channels] = the mean as
// above.
//
// Vulkan devices compute these statistics by batch_norm_chunks and batch_norm_combine.
//
// batch_norm_chunks: partial [chunks, 2, channels] = mean and sum of squared deviations of
// NORM_SCALE * (x - first) of each chunk of chunk_rows rows (<= 32768), where first [channels] is
// the first row, with 0 for what is not finite. `team` threads (1 or BATCH_NORM_TEAM)
// take turns along a chunk. The variant is {whole, team}; with whole 1, 8 channels are one load.
// threads = {ceil(channels / 8), chunks * team}.
#define BATCH_NORM_TEAM 8
//
// batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias.
// threads.x = ceil(channels / 8) * ceil(rows / BATCH_NORM_ROWS).
//
// batch_norm_grad_stats: sums [2, channels] = sum(dy * xhat), sum(dy).
//
// batch_norm_grad_chunks: the same sums of each chunk, [chunks, 2, channels], on Vulkan devices.
// The variant and the threads are those of batch_norm_chunks.
//
// batch_norm_grad: dx = weight / sqrt(var + eps) * (dy - train * (sums[1] + xhat * sums[0]) /
// rows). threads as batch_norm.
struct BatchNormParams {
  // stats: x, mean, var, both; chunks: x, partial, first; batch_norm: x, mean, var, weight, bias,
  // y. grad_stats and grad_chunks: x, dy, mean, var, sums; grad: x, dy, mean, var, weight, sums,
  // dx.
  uint offset[7];
  uint n, rows, channels, chunk_rows;
  float eps;
  uint train, has_rest;
};
// batch_norm_combine: joins each run of chunks, in order, by Chan's formula into means and sums of
// squared deviations [runs, channels]; a single run gives the results of batch_norm_stats instead,
// and else `first` and `both` are not touched.
// Chunk k of partial has its means at k * chunk_step, and its deviations lie deviations_at behind
// them. threads: channels, 32, runs.
struct BatchNormCombineParams {
  uint offset[5];  // partial, first, mean, var, both
  uint rows, channels, chunk_rows, chunks, run, chunk_step, deviations_at;
};

// ---- rows and groups ---------------------------------------------------------------------------
// Their means are relative to the first element of the row or group: were it the mean itself, its
// rounding would count where elements differ little from a large mean.

// ---- rows (x is [rows, cols]) ----------------------------------------------------------------
// layer_norm: y = (x - mean) * rstd * weight + bias per row; stats [rows, 2] = mean less the row's
// first element, and rstd = 1 / sqrt(biased variance + eps). The variant is {rms}; with 1, mean is
// 0, stats 0 and rstd = 1 / sqrt(mean(x^2) + eps), and bias is not added. cols <= 2^16.
//
// layer_norm_grad: with g = weight * dy and xhat = (x - mean) * rstd, dx = rstd * (g - mean(g) -
// xhat * mean(g * xhat)), without mean(g) in variant {rms}. Its limits are those of layer_norm.
//
// layer_norm_grad_stats: sums [2, cols] = sum(dy * xhat), sum(dy) over the rows. The variant is
// {rms}.
//
// layer_norm_grad_chunks: the same sums of each chunk of chunk_rows rows (<= 32768), [chunks, 2,
// cols], on Vulkan devices. The variant is {flat, rms}; with flat 1, cols and the offsets of x and
// dy are multiples of 8. threads = {ceil(cols / 8), chunks}.
struct LayerNormParams {
  // layer_norm: x, weight, bias, y, stats; grad: x, dy, weight, stats, dx; grad_stats and
  // grad_chunks: x, dy, stats, sums.
  uint offset[5];
  uint rows, cols;
  uint chunk_rows;  // of grad_chunks
  float eps;        // of layer_norm
};

// ---- groups: x is [samples, rows, channels], a group is `width` channels side by side ---------
// A thread handles 8 channels of some rows of one sample: GROUP_NORM_ROWS of them in group_norm and
// group_norm_grad, chunk_rows in the two kernels of statistics. The variant of these four is
// {whole}; with 1, channels and the offsets of all tensors that have channels are multiples of 8.
#define GROUP_NORM_ROWS 16
// group_norm_stats: moments [samples, groups, blocks, 3] = count, mean and sum of squared
// deviations of NORM_SCALE * (x - the group's first element), of blocks of chunk_rows rows (<=
// 32768; the last ones may be shorter) and `merged` channels (1, 2, 4 or 8, which divides width). A
// group's blocks are ordered by rows, then by channels. threads.x = samples * ceil(rows /
// chunk_rows) * ceil(channels / 8).
//
// group_norm: y = (x - mean) * rstd * weight + bias with stats [samples, groups, 2] = mean less the
// group's first element, and rstd = 1 / sqrt(biased variance + eps).
// threads.x = samples * ceil(rows / GROUP_NORM_ROWS) * ceil(channels / 8).
//
// group_norm_grad_stats: partial [samples, chunks, 2, channels] = sum(dy * xhat), sum(dy) over the
// rows of each chunk. The threads are those of group_norm_stats.
//
// group_norm_grad: with g = weight * dy and sums [samples, 2, groups] = sum(g * xhat), sum(g) over
// the group, dx = rstd * (g - (sums[1] + xhat * sums[0]) / (rows * width)). The threads are those
// of group_norm.
struct GroupNormParams {
  // stats: x, moments; group_norm: x, stats, weight, bias, y; grad_stats: x, dy, stats, partial;
  // grad: x, dy, stats, weight, sums, dx.
  uint offset[6];
  uint samples, rows, channels, width;
  uint chunk_rows;  // of the statistics
  uint merged;      // of group_norm_stats
};
// group_norm_combine: joins runs of up to GROUP_NORM_BLOCKS of the `blocks` moments of each group,
// in order, by Chan's formula. The variant is {last}. With 0, combined [groups, runs, 3] are
// moments again; with 1, for a single run, they are the stats [groups, 2] of group_norm.
// threads.x = groups * runs.
#define GROUP_NORM_BLOCKS 64
struct GroupNormCombineParams {
  uint offset[2];  // moments, combined
  uint groups, blocks;
  float eps;
};
