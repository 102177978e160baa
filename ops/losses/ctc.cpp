#include "ops/losses/ctc.h"

#include <algorithm>

#include "ops/losses/lattice.h"
#include "ops/losses/losses.h"
#include "ops/numeric.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

uint32_t ctc32(int64_t n) {
  return count32(n, "ctc_loss");
}

// The common part of a loss's kernel calls.
struct CtcProblem {
  Tensor states;  // as ctc_states makes them
  kernels::CtcParams params;

  // Inputs: log_probs, targets, frames, labels.
  CtcProblem(const Tensor& x, const Tensor& targets, const Tensor& frames, const Tensor& labels,
             int32_t blank)
      : params{.offset = {},
               .frames = ctc32(x.size(0)),
               .samples = ctc32(x.size(1)),
               .classes = ctc32(x.size(2)),
               .labels = ctc32(targets.size(1)),
               .width = ctc32(2 * targets.size(1) + 2),
               .begin = 0,
               .end = 0,
               .blank = static_cast<uint32_t>(blank)} {
    states = empty_on(x, {params.samples, 4, params.width}, DType::i32);
    launch("ctc_states",
           {in(contiguous(targets)), in(contiguous(frames)), in(contiguous(labels)), out(states)},
           params, {.threads = {ctc32(states.numel() / 4), 1, 1}});
  }

  Tensor per_state(const Tensor& like) const {
    return empty_on(like, {params.frames, params.samples, params.width}, DType::f32);
  }
};

// Outputs: losses [N], alpha.
std::vector<Tensor> ctc_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const Tensor x = contiguous(inputs[0]);
  const CtcProblem problem(x, inputs[1], inputs[2], inputs[3], std::any_cast<int32_t>(attrs));
  const auto& p = problem.params;
  Tensor alpha = problem.per_state(x), loss = empty_on(x, {p.samples}, DType::f32);
  for_each_part(p, p.frames, false, [&](const kernels::CtcParams& part) {
    launch("ctc_alpha", {in(x), in(problem.states), inout(alpha)}, part,
           {.threads = {p.samples, 1, 1}});
  });
  launch("ctc_total", {in(problem.states), in(alpha), out(loss)}, p,
         {.threads = {p.samples, 1, 1}});
  return {std::move(loss), std::move(alpha)};
}

std::vector<Tensor> ctc_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor x = contiguous(r.input(0)), dloss = contiguous(std::exchange(dys[0], {}));
  const CtcProblem problem(x, r.input(1), r.input(2), r.input(3), r.attributes<int32_t>());
  const auto& p = problem.params;
  const Tensor alpha = r.output(1), posterior = problem.per_state(x);
  const Tensor carry = full({p.samples, p.width}, 0, DType::f32, x.device().shared_from_this());
  for_each_part(p, p.frames, true, [&](const kernels::CtcParams& part) {
    launch("ctc_beta",
           {in(x), in(problem.states), in(alpha), in(r.output(0)), inout(carry), out(posterior)},
           part, {.threads = {p.samples, 1, 1}});
  });
  Tensor dx = full(x.shape(), 0, DType::f32, x.device().shared_from_this());
  launch("ctc_grad", {in(problem.states), in(posterior), in(dloss), inout(dx)}, p,
         {.threads = {ctc32(posterior.numel()), 1, 1}});
  std::vector<Tensor> grads(4);
  grads[0] = std::move(dx);
  return grads;
}

const Op ctc_op = {"ctc_loss", ctc_forward, ctc_vjp, saves_always<15, 3>};

void check_inputs(const Tensor& x, const Tensor& targets, const Tensor& frames,
                  const Tensor& labels, int32_t blank) {
  check_float(x, "ctc_loss");
  check<ShapeError>(x.rank() == 3 && x.size(0) > 0, "ctc_loss",
                    "log_probs must be [T, N, C] of one frame or more, got {}", x);
  check<ShapeError>(targets.rank() == 2 && targets.size(0) == x.size(1), "ctc_loss",
                    "targets must be [N, S] for the N of log_probs, got {} and {}", targets, x);
  check<ShapeError>(2 * targets.size(1) + 2 <= MOST_WAYS, "ctc_loss",
                    "targets may have {} labels at most, got {}", MOST_WAYS / 2 - 1, targets);
  for (const Tensor* t : {&frames, &labels})
    check<ShapeError>(t->shape() == Shape{x.size(1)}, "ctc_loss",
                      "lengths must be [N] for the N of log_probs, got {} and {}", *t, x);
  check_sequences("ctc_loss", targets, frames, labels, x.size(0), x.size(2), blank);
}

}  // namespace

CtcTargets ctc_targets(const std::vector<std::vector<int32_t>>& sequences, int64_t classes,
                       int32_t blank, const std::vector<int64_t>& frames) {
  check(frames.empty() || frames.size() == sequences.size(), "ctc_targets",
        "there must be a frame count for each of {} sequences, got {}", sequences.size(),
        frames.size());
  size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  std::vector<int32_t> labels(sequences.size() * longest, blank), lengths;
  for (size_t n = 0; n < sequences.size(); ++n) {
    const auto& sequence = sequences[n];
    auto needed = static_cast<int64_t>(sequence.size());
    for (size_t i = 0; i < sequence.size(); ++i) {
      check(sequence[i] >= 0 && sequence[i] < classes && sequence[i] != blank, "ctc_targets",
            "labels must be classes 0 to {} but the blank {}, got {} at place {} of sample {}",
            classes - 1, blank, sequence[i], i, n);
      needed += i > 0 && sequence[i] == sequence[i - 1];
      labels[n * longest + i] = sequence[i];
    }
    check(frames.empty() || frames[n] >= needed, "ctc_targets",
          "{} labels of sample {} need {} frames, got {}; leave it out, or take fewer frames "
          "together",
          sequence.size(), n, needed, frames.empty() ? 0 : frames[n]);
    lengths.push_back(static_cast<int32_t>(sequence.size()));
  }
  const auto count = static_cast<int64_t>(sequences.size());
  return {tensor(std::span<const int32_t>(labels), {count, static_cast<int64_t>(longest)}),
          tensor(std::span<const int32_t>(lengths), {count})};
}

Tensor ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                const CtcOptions& options) {
  const AutocastInputs autocast("ctc_loss", {&log_probs}, true);
  check_inputs(log_probs, targets, input_lengths, target_lengths, options.blank);
  log_probs = cast(std::move(log_probs), DType::f32);
  Tensor losses = apply(ctc_op, options.blank,
                        TensorList(std::move(log_probs), std::move(targets),
                                   std::move(input_lengths), target_lengths))[0];
  if (options.zero_infinity) losses = masked_fill(losses, isinf(losses), 0);
  if (options.reduction == Reduction::mean)
    losses = std::move(losses) / cast(clamp(std::move(target_lengths), 1, 1e9f), DType::f32);
  return reduced(std::move(losses), options.reduction);
}

}  // namespace rw
