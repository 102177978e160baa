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
// Counts (GOOD, BAD, UPDATES, SKIPPED, SKIPPED_IN_A_ROW, FALLS, GROWTHS, WINDOW_VOIDED, VOIDED)
// have two digits, since f32 ends counting at 2^24: slot + STATE_HIGH has the one in units of 2^24.
#define STATE_HIGH 16
#define STATE_SIZE 32
// Behind these there are two more slots for each chunk of the table of gradients, the digits of the
// updates done that its parameter missed because it had no gradient. The own updates of a
// parameter, by which rules correct their moments, are STATE_UPDATES minus these.
#define STATE_MISSED(chunk) (STATE_SIZE + 2 * (chunk))

// Gradients lie anywhere in one range of memory. A table of chunks, each within one parameter, says
// where: i32 [rows, 4] = begin in the parameters and their state, begin in the range of gradients,
// size; in elements; and the chunk's number in the order of the parameters, whatever the order of
// the rows. Size 0: the parameter has no gradient and stays as it is.
#define CHUNK_ROW 4
// grad_stats: for the rows from `first` on and their chunk numbers c, partial[c] = sum of squares
// of the gradient times a scale, so that squares neither overflow nor vanish; partial[chunks + c] =
// 1 if an element is not finite (by its bits), else 0; and partial[2 * chunks + c] = the scale:
// SQUARES_DOWN if the largest |element| is finite and at least 2^40, SQUARES_UP if it is less than
// 2^-50, else 1; or 0 if there is no gradient. One workgroup per row.
#define SQUARES_DOWN 5.169878828456423e-26f  // 2^-84
#define SQUARES_UP 1.2379400392853803e27f    // 2^90
#define SQUARES_DOWN_BITS 0x53800000u        // of 2^40
#define SQUARES_UP_BITS 0x26800000u          // of 2^-50
//
// count_missed: for each chunk without a gradient (by these partials), adds 1 to the updates that
// its parameter missed, unless state[FOUND_INF] != 0. threads.x = chunks.
struct GradStatsParams {
  uint offset[3];    // g, table, partial; count_missed: partial, state
  uint first, rows;  // of grad_stats
  uint chunks;
};

#define SCHEDULE_CONSTANT 0
// Factor of update t (from 0; t counts updates done, not skipped ones): (t + 1) / warmup while t <
// warmup, then with progress q = min(1, (t - warmup) / max(1, total - warmup)) and floor f:
#define SCHEDULE_COSINE 1      // f + (1 - f) (1 + cos(pi q)) / 2
#define SCHEDULE_LINEAR 2      // 1 - (1 - f) q
#define SCHEDULE_STEP 3        // gamma ^ floor((t - warmup) / period)
#define SCHEDULE_POLYNOMIAL 4  // f + (1 - f) (1 - q) ^ gamma
#define SCHEDULE_MULTISTEP 5   // gamma ^ number of milestones <= t
// Cosine with restarts: q = place in the period / its length. The first period has `period`
// updates, each later one gamma times as many as the one before.
#define SCHEDULE_RESTARTS 6
#define SCHEDULE_NOAM 7  // gamma * min(sqrt(warmup / (t + 1)), (t + 1) / warmup), warm-up included
// Cosine from gamma up to 1 at t = peak, which may lie between two updates, and down to f at total
// - 1. No warm-up.
#define SCHEDULE_ONE_CYCLE 8
#define MOST_MILESTONES 8
// Loss-scale rules: 0 fixed, 1 dynamic. An overflow counts as bad. After `hysteresis` bad updates
// the scale is multiplied by `backoff`, after `interval` finite updates in a row by `growth`. With
// keep_bad 1, bad updates add up across finite ones (TensorFlow); with 0, a finite update resets
// their count. A change of the scale resets both counts; the scale stays in [min_scale, max_scale].
//
// update_prepare: reduces the partials in order and updates the STATE slots. One thread. The
// gradient factor uses the scale that the gradients were made with, from before this change. The
// clip coefficient is min(1, max_norm / (norm + 1e-6)). An overflow counts as skipped and leaves
// UPDATES and both factors unchanged. This is variant {PREPARE_ALL}. The next three are for
// gradients that are used as soon as they are made:
#define PREPARE_ALL 0
// Before the first gradient: clears FOUND_INF, sets the factors with the norm of the last update,
// if there was one, and counts this update in UPDATES.
#define PREPARE_BEGIN 1
// Before a gradient is used: partial [chunks] are overflow flags, and any of them sets FOUND_INF.
#define PREPARE_CHECK 2
// After the last gradient: sets the norm, unless there was an overflow, and the loss scale. An
// overflow takes the update out of UPDATES.
#define PREPARE_END 3
// Ends a micro-batch that is one part of an update: clears FOUND_INF and sets the gradient factor
// without clipping. PREPARE_JUDGE follows it and is PREPARE_END without a change of UPDATES.
#define PREPARE_PART 4
#define PREPARE_JUDGE 5
// Ends a micro-batch of a window that is judged alone: an overflow sets FOUND_INF and counts as
// voided; otherwise `weight` is added to WINDOW_WEIGHT. PREPARE_WINDOW follows the last one and is
// PREPARE_ALL with WINDOW_WEIGHT for `weight`: a voided micro-batch is an overflow for the loss
// scale, and without any weight the update is skipped.
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
// least normal value that the call gives) or 0; the bits of the largest finite |x|; and
// INFINITY_BITS minus the bits of the least |x| that is not 0, or 0 if there is none.
#define RANGE_NANS 0
#define RANGE_INFINITIES 1
#define RANGE_NORMALS 2
#define RANGE_DENORMALS 3
#define RANGE_ZEROS 4
#define RANGE_LARGEST 5
#define RANGE_LEAST 6
#define RANGE_SIZE 8
#define INFINITY_BITS 0x7f800000
// value_range: adds x to the row by integer atomics, whose result does not depend on their order.
// With `scaled` the least normal value is multiplied by state[SCALE]. One workgroup per `chunk`
// elements, a multiple of 8. The variant is {flat}; with 1, x is dense.
struct ValueRangeParams {
  uint offset[3];  // x, row, state
  uint n, chunk;
  float least_normal;
  uint scaled;
  uint rank;
  uint shape[REWIND_MAX_DIMS];
  uint stride[REWIND_MAX_DIMS];
};

// The history of a row of counts, i32. For the first step with a NaN or an infinity, and for the
// first one with more denormal than normal values: its number (0: there was none), its update, two
// counts, and the bits of the loss scale. Then the numbers of steps: all, those with a NaN or an
// infinity, those with more denormal than normal values, and those with nothing but zeros. Last,
// RANGE_LARGEST and RANGE_LEAST over all steps.
#define HISTORY_OVERFLOW 0   // step, update, NaNs, infinities, scale
#define HISTORY_UNDERFLOW 5  // step, update, denormal and normal values, scale
#define HISTORY_STEPS 10
#define HISTORY_OVERFLOWS 11
#define HISTORY_UNDERFLOWS 12
#define HISTORY_ZEROS 13
#define HISTORY_LARGEST 14
#define HISTORY_LEAST 15
#define HISTORY_SIZE 16
// range_history: adds each row of counts that is not empty to its history and clears it. With step
// 0 it only clears it. threads.x = rows.
struct RangeHistoryParams {
  uint offset[3];  // rows, history, state
  uint rows, step, update;
};

// Updates do nothing when state[FOUND_INF] != 0. In them t is the number of the parameter's own
// updates (STATE_MISSED), this one included, g = grad * state[GRAD_FACTOR] and lr = lr
// * state[LR_FACTOR]. A call handles the rows of the table from `first` on. A row's chunk takes
// 2^shift threads with REWIND_FLAT elements each: threads.x = rows << shift.
//
// sgd: g += weight_decay * param; buffer = momentum * buffer + (1 - dampening) * g, or g itself in
// the first update (t == 1); param -= lr * (nesterov ? g + momentum * buffer :
// buffer). maximize negates the gradient before the decay.
struct SgdParams {
  uint offset[5];  // param, grad, momentum (rw; bound to param when momentum == 0), table, state
  uint first, rows, shift;
  float lr, momentum, dampening, weight_decay;
  uint nesterov, maximize;
};
// adam: with m and v the moving means of g and g^2:
// param -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps). Weight decay is added to
// g, or with `decoupled` (AdamW) param *= 1 - lr * weight_decay before the step.
struct AdamParams {
  uint offset[6];  // param, grad, m, v, table, state
  uint first, rows, shift;
  float lr, beta1, beta2, eps, weight_decay;
  uint decoupled;
};

// adam_8bit: adam for one parameter, dense, whose m and v are u8 codes. Block b of ADAM_8BIT_BLOCK
// elements has the scales absmax_m[b] and absmax_v[b]: m = map[code] * absmax. maps (f32 [4, 256])
// holds the signed map of m, its bounds, the map of v, and its bounds (core/blocks/block_type.h).
// After the update absmax is the largest |m| or v of the block. The code of m is the number of
// bounds b with m > b * absmax; the code of v likewise, but at least 1 where v > 0. v is at most
// the largest finite number. One workgroup per block.
#define ADAM_8BIT_BLOCK 256
struct Adam8bitParams {
  uint offset[8];  // param, grad, m, v, absmax_m, absmax_v, maps, state
  uint n;
  uint own;  // a chunk of the parameter in the table
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
  uint own;  // a chunk of the parameter in the table
  float lr, beta1, beta2, eps, weight_decay;
};

// window_fold: sum += grad for the rows of a table, unless state[FOUND_INF] != 0: the micro-batch
// is voided. Threads as sgd.
struct WindowFoldParams {
  uint offset[4];  // sum, grad, table, state
  uint first, rows, shift;
};
// window_add: sum += grad in 16 bits, rounded. The variant is {compensated}. With 1, rest holds
// what rounding left out (Kahan 1965): y = grad - rest, new = round(sum + y), rest = round((new -
// sum) - y). With 0, rest is bound to sum and not touched. Flat.
struct WindowAddParams {
  uint offset[3];  // sum, rest, grad
  uint n;
};

// moment_update: like adam, with variant {MOMENT_*}, for rules with up to three states. The states
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

// muon_momentum: grad, buffer and update of one parameter are dense. buffer += (1 - momentum) * (g
// - buffer). update = the new buffer, or with nesterov g + momentum * (buffer - g). If
// state[FOUND_INF] != 0, the buffer stays and update is 0. Flat.
//
// muon: param = param * (1 - lr * weight_decay) - lr * ratio * update. Flat.
struct MuonParams {
  uint offset[4];  // muon_momentum: grad, buffer, update, state; muon: param, update, state
  uint n;
  float momentum;
  uint nesterov;
  float lr, weight_decay, ratio;
};

// Adafactor, for one parameter at a time, dense [matrices, rows, cols]. With w = t ^ beta2_decay,
// its states follow mean squares of the gradient: x += w * (mean - x).
//
// adafactor_rows: row_var [matrices, rows], of means over the columns. One workgroup per row.
//
// adafactor_columns: partial [matrices, chunks, cols] = norm of each column in each chunk of
// ADAFACTOR_ROWS rows. threads.x = elements of partial.
//
// adafactor_combine: col_var [matrices, cols] from these norms. threads.x = elements of col_var.
//
// adafactor_norms: partial [2, chunks] = norms of the parameter and of its update u = g /
// sqrt(max(v, eps1^2)), for each chunk of ADAFACTOR_CHUNK elements. The variant is {factored}. With
// 1, v = row_var * col_var / max(mean, eps1), where mean [matrices] is the mean of row_var. With 0,
// v is row_var [elements], into which g^2 goes first. One workgroup per chunk.
//
// adafactor: param = param * (1 - lr * weight_decay) - rate / max(1, rms(u) / clip) * u. rate is
// lr, or min(lr, 1 / sqrt(t)) with flags & 1, times max(eps2, rms(param)) with flags & 2. The
// variant and the threads are those of adafactor_norms.
#define ADAFACTOR_ROWS 64
#define ADAFACTOR_CHUNK 16384
#define ADAFACTOR_RELATIVE 1
#define ADAFACTOR_SCALED 2
struct AdafactorParams {
  // rows: grad, row_var, state; columns: grad, partial; combine: partial, col_var, state; norms and
  // adafactor: param, grad, row_var, col_var, mean, state, partial.
  uint offset[7];
  uint n, matrices, rows, cols;
  uint chunks;  // rows, columns and combine: of a matrix's rows; otherwise of the parameter
  uint own;     // a chunk of the parameter in the table
  float lr, weight_decay, beta2_decay, eps1, eps2, clip;
  uint flags;
};

// ---- LAMB and averages of parameters -----------------------------------------------------------
// lamb_norms: updates m and v of the table's rows from `first` on. partial [2, chunks] are, for the
// chunks whose numbers begin with `number`, the norms of the parameter and of its update
// u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * param. One workgroup per
// row. Nothing happens when state[FOUND_INF] != 0.
//
// lamb: param -= lr * ratio[chunk] * u. The threads and the condition are those of lamb_norms.
//
// lamb_ratio: ratio [chunks] = norm of the chunk's parameter / norm of u, or 1 if one of them is 0
// or `adapt` is 0. first [parameters + 1] (i32) is the first chunk of each parameter. threads.x =
// parameters.
struct LambParams {
  // norms: param, grad, m, v, table, state, partial; ratio: partial, first, state, ratio; lamb:
  // param, m, v, table, ratio, state.
  uint offset[7];
  uint first, rows, number;  // not of lamb_ratio
  uint chunks;
  float lr, beta1, beta2, eps, weight_decay;
  uint parameters, adapt;  // of lamb_ratio
};
// ema: average += rate * (param - average) at every `every`-th update since the average began,
// unless state[FOUND_INF] != 0. With k the number of such updates so far, this one included, which
// is (state[UPDATES] - start[0]) / every, rate is 1 - decay (AVERAGE_DECAY), (1 - decay) / (1 -
// decay^k) (AVERAGE_CORRECTED), or 1 / k (AVERAGE_EQUAL). Flat.
#define AVERAGE_DECAY 0
#define AVERAGE_CORRECTED 1
#define AVERAGE_EQUAL 2
//
// lookahead: at the same updates as ema, slow += alpha * (param - slow), and param = slow. Flat.
struct AverageParams {
  uint offset[4];  // average, param, start, state; lookahead: slow, param, start, state
  uint n, every;
  float decay;  // of ema
  uint kind;    // of ema: AVERAGE_*
  float alpha;  // of lookahead
};
