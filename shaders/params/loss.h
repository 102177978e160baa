// Losses.

// pair_loss: y[i] = f(x[i], t[i]), dense. If weighted, weight[i % period] is the weight of the
// positive class. The variant is {LOSS_*, weighted}. Flat.
//
// pair_loss_grad: out = dy * the derivative of f by x, or by t with wrt 1. With dy_one 1, dy is one
// element. The variant is {LOSS_*, weighted, wrt}. Flat.
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
  uint offset[5];  // x, t, weight, y; grad: x, t, weight, dy, out
  uint n, period;
  uint dy_one;  // of the gradient
  float a, b;
};

// ---- of a class for each row of x [rows, cols] -------------------------------------------------
// nll_loss: loss[row] = -x[row, target[row]]; 0 where target == ignore_index, NaN where it is
// outside [0, cols). threads.x = rows.
// nll_loss_grad: dx = -dloss[row] at the target, 0 elsewhere; NaN in rows whose target is outside.
// Flat over rows * cols.
//
// cross_entropy: per row (1-s)(lse - x[t]) + s(lse - mean(x)); 0 where t == ignore_index; NaN where
// t is outside [0, cols). Outputs loss and lse [rows]. One workgroup per row.
//
// cross_entropy_grad: dlogits = dloss[row] * (softmax - (1-s) onehot - s/cols); 0 where ignored,
// NaN where t is outside [0, cols). threads.x = ceil(rows * cols / 8).
//
// soft_cross_entropy: with p the target distribution of a row (for an i32 target: 1 at its class),
// p' = (1 - s) p + s / cols, and weights w (1 unless weighted): loss = sum of w p' (lse - x), mass
// = sum of w p'. For an i32 target, loss and mass are 0 where target == ignore_index and NaN where
// it is outside [0, cols). The variant is {weighted}. One workgroup per row.
//
// soft_cross_entropy_grad: dx = dloss[row] * (mass * softmax - w p'). The variant is {weighted}.
// Flat over rows * cols.
struct ClassLossParams {
  // nll_loss: x, target, loss; grad: target, dloss, dx. cross_entropy: logits, target, loss, lse;
  // grad: logits, target, lse, dloss, dlogits. soft_cross_entropy: x, target, weight, loss, lse,
  // mass; grad: x, target, weight, lse, mass, dloss, dx.
  uint offset[7];
  uint rows, cols;
  float smoothing;  // s; not of nll_loss
  int ignore_index;
};

// Paths through a lattice, in logarithms: a log of 0 whose sums stay finite, and the largest number
// of states side by side.
#define LOG_NEVER -1e30f
#define MOST_WAYS 2048

// Connectionist temporal classification of log-probabilities x [frames, samples, classes]. A
// sample's states are its labels with a blank before, between and behind them. `width` is 2 labels
// + 2, so that the last place of a row is never a state.
//
// ctc_states: makes states [samples, 4, width] of targets [samples, labels], frame counts and label
// counts. For each state they hold its class (-1: there is no such state, -2: x has no such class),
// the next state of its class or -1, and CTC_FIRST | CTC_SKIPS; for each sample the numbers of
// frames and states. threads.x = samples * width.
//
// ctc_alpha: alpha [frames, samples, width] is the log of the probability of all paths to each
// state. A call handles the frames [begin, end) and reads frame begin - 1. The logs of a row are
// relative to a whole number, which is in its last place and is chosen anew at every CTC_RENEWED-th
// frame, so that likely paths are near 0 and lose no digits. One workgroup per sample.
//
// ctc_beta: does the same from the end and makes the posteriors [frames, samples, width] of the
// states: NaN where the loss is infinite, 0 where a sample has no such frame. `carry` [samples,
// width] goes from a call to the call of the frames before. One workgroup per sample.
//
// ctc_total: loss [samples]. threads.x = samples.
//
// ctc_grad: dx (zeros) -= posterior * dloss, summed over the states of a class in their order.
// threads.x = frames * samples * width.
#define CTC_FIRST 1  // no state before it has its class
#define CTC_SKIPS 2  // may follow the label before without the blank between
#define CTC_RENEWED 8
struct CtcParams {
  uint offset[6];
  uint frames, samples, classes, labels, width;
  uint begin, end;
  uint blank;
};

// The lattice of a transducer. At frame t and after u labels, `blank` [samples, frames, width]
// leads to the next frame and `label` of the same shape to the next label. lengths [samples, 2]
// holds the frames and labels of each sample. Calls handle one diagonal t + u after the other,
// those in [begin, end).
//
// rnnt_alpha: alpha [samples, frames, width] is the log of the probability of all paths to each
// place. One workgroup per sample.
//
// rnnt_total: loss [samples]. threads.x = samples.
//
// rnnt_beta: goes from the end and makes gradient [2, samples, frames, width], of blank and of
// label, times dloss; NaN where the loss is infinite, unless dloss is 0. `carry` [samples, width]
// goes from a call to the call of the diagonals before. One workgroup per sample.
struct RnntParams {
  uint offset[8];
  uint samples, frames, width;
  uint begin, end;
};
