// Optimizers, schedules, averages of parameters.

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
#define STATE_FALLS 10            // of the scale since it last grew
#define STATE_GROWTHS 11          // of the scale
// These are for windows whose micro-batches are judged one by one:
#define STATE_WINDOW_WEIGHT 12  // sum of the weights of those that count, in the window so far
#define STATE_WINDOW_VOIDED 13  // how many do not, in the window so far
#define STATE_VOIDED 14         // and in all
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
// UPDATES and both factors. That is variant {PREPARE_ALL}; where gradients are used as they come:
#define PREPARE_ALL 0
// Before them: FOUND_INF is forgotten, the factors are set with the norm of the update before, if
// there was one, and UPDATES counts this one.
#define PREPARE_BEGIN 1
// Before one of them is used: partial [chunks] are overflow flags; any of them sets FOUND_INF.
#define PREPARE_CHECK 2
// After them: the norm, unless there was an overflow, and the loss scale; an overflow takes the
// update out of UPDATES.
#define PREPARE_END 3
// Ends a micro-batch that is one part of an update: it clears FOUND_INF and sets the gradient
// factor without clipping. After it comes PREPARE_JUDGE: PREPARE_END without a change of UPDATES.
#define PREPARE_PART 4
#define PREPARE_JUDGE 5
// Ends a micro-batch of a window that is judged alone: an overflow sets FOUND_INF and counts as
// voided, else `weight` is added to WINDOW_WEIGHT. After them comes PREPARE_WINDOW: PREPARE_ALL
// with WINDOW_WEIGHT for `weight`, where a voided micro-batch is an overflow for the loss scale,
// and no weight at all skips the update.
#define PREPARE_MICRO_BATCH 6
#define PREPARE_WINDOW 7
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

// ---- The range of values -----------------------------------------------------------------------
// A row of counts, i32: how many elements are NaN, infinite, normal, denormal (not 0, and below the
// least normal value that is asked for) or 0; the bits of the largest finite |x|; and INFINITY_BITS
// - the bits of the least |x| that is not 0, 0 where there is none.
#define RANGE_NANS 0
#define RANGE_INFINITIES 1
#define RANGE_NORMALS 2
#define RANGE_DENORMALS 3
#define RANGE_ZEROS 4
#define RANGE_LARGEST 5
#define RANGE_LEAST 6
#define RANGE_SIZE 8
#define INFINITY_BITS 0x7f800000
// value_range: adds x to the row, by integer atomics, which give the same in any order. With
// `scaled` the least normal value is multiplied by state[SCALE]. One workgroup per `chunk`
// elements, a multiple of 8. variant {flat}: 1 = dense.
struct ValueRangeParams {
  uint offset[3];  // x, row, state
  uint n, chunk;
  float least_normal;
  uint scaled;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint stride[REWIND_MAX_DIMS];
};

// What rows of counts had in the steps so far, i32. Of the first step with a NaN or an infinity,
// and of the first one with more denormal than normal values: its number (0: there was none), its
// update, two counts, the bits of the loss scale. Then steps: all, those with a NaN or an infinity,
// those with more denormal than normal values, those with nothing but zeros. RANGE_LARGEST and
// RANGE_LEAST over all steps.
#define HISTORY_OVERFLOW 0   // step, update, NaNs, infinities, scale
#define HISTORY_UNDERFLOW 5  // step, update, denormal and normal values, scale
#define HISTORY_STEPS 10
#define HISTORY_OVERFLOWS 11
#define HISTORY_UNDERFLOWS 12
#define HISTORY_ZEROS 13
#define HISTORY_LARGEST 14
#define HISTORY_LEAST 15
#define HISTORY_SIZE 16
// range_history: takes each row of counts that has any into its history, and clears it. step 0:
// only clears it. threads.x = rows.
struct RangeHistoryParams {
  uint offset[3];  // rows, history, state
  uint rows, step, update;
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

// adam_8bit: the same for one parameter, dense, whose m and v are u8 codes. Block b of
// ADAM_8BIT_BLOCK elements has the scales absmax_m[b] and absmax_v[b]: m = map[code] * absmax. maps
// (f32 [4, 256]): the signed map of m, its bounds, the map of v, its bounds (optim/dynamic_map.h).
// After the update absmax is the largest |m| or v of the block, and the code of m the number of
// bounds b with m > b * absmax; the same of v, but at least 1 where v > 0. v is at most the largest
// finite number. One workgroup per block.
#define ADAM_8BIT_BLOCK 256
struct Adam8bitParams {
  uint offset[8];  // param, grad, m, v, absmax_m, absmax_v, maps, state
  uint n;
  float lr, beta1, beta2, eps, weight_decay;
  uint decoupled;
};

// adama_fold: the moments take in the gradient of a micro-batch: m = decay1 * m + (1 - beta1) * g,
// v = decay2 * v + (1 - beta2) * g^2. The decays are the betas in a window's first gradient,
// else 1. An overflow leaves out the gradient, not the decay.
struct AdamaFoldParams {
  uint offset[5];  // grad, m, v, table, state
  uint first, rows, shift;
  float beta1, beta2, decay1, decay2;
};
// adama: adam's step, decoupled, from the moments as they are. Flat.
struct AdamaParams {
  uint offset[4];  // param, m, v, state
  uint n;
  float lr, beta1, beta2, eps, weight_decay;
};

// window_fold: sum += grad for the rows of a table, unless state[FOUND_INF] != 0: the micro-batch
// is voided. Threads as sgd.
struct WindowFoldParams {
  uint offset[4];  // sum, grad, table, state
  uint first, rows, shift;
};
// window_add: sum += grad in 16 bits, rounded. variant {compensated}: with 1 what rounding left out
// stays in rest (Kahan 1965): y = grad - rest, new = round(sum + y), rest = round((new - sum) - y);
// with 0 rest is bound to sum and not touched. Flat.
struct WindowAddParams {
  uint offset[3];  // sum, rest, grad
  uint n;
};

// moment_update: the same as adam, variant {MOMENT_*}, for rules with up to three states. Those
// that a rule does not have are bound to param and not touched.
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
