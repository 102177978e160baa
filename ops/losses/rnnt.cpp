#include "ops/losses/rnnt.h"

#include <algorithm>

#include "core/autograd/checkpoint.h"
#include "ops/losses/lattice.h"
#include "ops/losses/losses.h"
#include "ops/numeric.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

uint32_t rnnt32(int64_t n) {
  return count32(n, "rnnt_loss");
}

// ---- the lattice: inputs blank and label [N, T, U + 1] of log-probabilities, lengths [N, 2];
// outputs losses [N] and alpha
kernels::RnntParams lattice_params(const Tensor& blank) {
  return {.offset = {},
          .samples = rnnt32(blank.size(0)),
          .frames = rnnt32(blank.size(1)),
          .width = rnnt32(blank.size(2)),
          .begin = 0,
          .end = 0};
}

uint32_t diagonals(const kernels::RnntParams& p) {
  return p.frames + p.width - 1;
}

std::vector<Tensor> lattice_forward(const std::any&, std::span<Tensor> inputs) {
  const Tensor blank = contiguous(inputs[0]), label = contiguous(inputs[1]);
  const Tensor lengths = contiguous(inputs[2]);
  const kernels::RnntParams params = lattice_params(blank);
  Tensor alpha = empty_on(blank, blank.shape(), DType::f32);
  Tensor loss = empty_on(blank, {params.samples}, DType::f32);
  for_each_part(params, diagonals(params), false, [&](const kernels::RnntParams& p) {
    launch("rnnt_alpha", {in(blank), in(label), in(lengths), inout(alpha)}, p,
           {.threads = {p.samples, 1, 1}});
  });
  launch("rnnt_total", {in(blank), in(lengths), in(alpha), out(loss)}, params,
         {.threads = {params.samples, 1, 1}});
  return {std::move(loss), std::move(alpha)};
}

std::vector<Tensor> lattice_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor blank = contiguous(r.input(0)), label = contiguous(r.input(1));
  const Tensor lengths = contiguous(r.input(2)), dloss = contiguous(std::exchange(dys[0], {}));
  const kernels::RnntParams params = lattice_params(blank);
  const Tensor carry = full({params.samples, params.width}, LOG_NEVER, DType::f32,
                            blank.device().shared_from_this());
  const Tensor gradient =
      empty_on(blank, {2, params.samples, params.frames, params.width}, DType::f32);
  for_each_part(params, diagonals(params), true, [&](const kernels::RnntParams& p) {
    launch("rnnt_beta",
           {in(blank), in(label), in(lengths), in(r.output(1)), in(r.output(0)), in(dloss),
            inout(carry), out(gradient)},
           p, {.threads = {p.samples, 1, 1}});
  });
  return {select(gradient, 0, 0), select(gradient, 0, 1), Tensor()};
}

const Op lattice_op = {"rnnt_loss", lattice_forward, lattice_vjp, saves_always<7, 3>};

// ---- around it
// Log-probabilities of the blank and of the next label, [N, T, U + 1] each.
struct Steps {
  Tensor blank, label;
};

// Targets [N, U] with a final one that has no effect, and the class of the blank, for each place.
struct Targets {
  Tensor next;  // [N, 1, U + 1]
  Tensor blank;

  Targets(const Tensor& targets, int32_t blank_class) {
    const int64_t n = targets.size(0), labels = targets.size(1);
    const auto filled = [&](int64_t width, int32_t value) {
      return full({n, width}, static_cast<float>(value), DType::i32,
                  targets.device().shared_from_this());
    };
    next = unsqueeze(concat({targets, filled(1, ignored)}, 1), 1);
    blank = unsqueeze(filled(labels + 1, blank_class), 1);
  }
  static constexpr int32_t ignored = -100;
};

// The steps of logits [N, t, U + 1, C].
Steps steps_of(const Tensor& logits, const Targets& targets) {
  const Shape places(std::span(logits.shape().begin(), logits.shape().end() - 1));
  const Tensor rows = reshape(logits, {places.numel(), logits.size(-1)});
  const auto log_probability = [&](const Tensor& of) {
    const Tensor target = reshape(expand(of, places), {places.numel()});
    const Tensor loss = cross_entropy(
        rows, target, {.ignore_index = Targets::ignored, .reduction = Reduction::none});
    return reshape(-loss, places);
  };
  return {log_probability(targets.blank), log_probability(targets.next)};
}

Tensor lattice_loss(const Steps& steps, Tensor frames, Tensor labels, const RnntOptions& options) {
  const int64_t most_frames = steps.blank.size(1), most_labels = steps.blank.size(2) - 1;
  const auto within = [](Tensor lengths, int64_t most) {
    return clamp(std::move(lengths), 0, static_cast<float>(most));
  };
  const Tensor lengths =
      stack({within(std::move(frames), most_frames), within(std::move(labels), most_labels)}, 1);
  Tensor losses = apply(lattice_op, {}, {steps.blank, steps.label, lengths})[0];
  if (options.zero_infinity) losses = masked_fill(losses, isinf(losses), 0);
  return reduced(std::move(losses), options.reduction);
}

void check_lattice(int64_t samples, int64_t frames, int64_t width, int64_t classes,
                   const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                   int32_t blank) {
  check<ShapeError>(frames > 0 && width > 0, "rnnt_loss",
                    "there must be at least one frame, and a place before the first label, got "
                    "{} frames and {} places",
                    frames, width);
  check<ShapeError>(targets.shape() == Shape{samples, width - 1}, "rnnt_loss",
                    "targets must be [{}, {}], one label less than places, got {}", samples,
                    width - 1, targets);
  check<ShapeError>(width <= MOST_WAYS, "rnnt_loss", "targets may have {} labels at most, got {}",
                    MOST_WAYS - 1, targets);
  for (const Tensor* t : {&input_lengths, &target_lengths})
    check<ShapeError>(t->shape() == Shape{samples}, "rnnt_loss", "lengths must be [{}], got {}",
                      samples, *t);
  check_sequences("rnnt_loss", targets, input_lengths, target_lengths, frames, classes, blank);
}

}  // namespace

Tensor rnnt_loss(Tensor logits, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                 const RnntOptions& options) {
  const AutocastInputs autocast("rnnt_loss", {&logits}, true);
  check_float(logits, "rnnt_loss");
  check<ShapeError>(logits.rank() == 4, "rnnt_loss", "logits must be [N, T, U + 1, C], got {}",
                    logits);
  check_lattice(logits.size(0), logits.size(1), logits.size(2), logits.size(3), targets,
                input_lengths, target_lengths, options.blank);
  const Steps steps = steps_of(logits, Targets(targets, options.blank));
  return lattice_loss(steps, std::move(input_lengths), std::move(target_lengths), options);
}

Tensor rnnt_joint_loss(Tensor encoder, Tensor predictor, Tensor weight, Tensor bias, Tensor targets,
                       Tensor input_lengths, Tensor target_lengths, const RnntOptions& options) {
  const AutocastInputs autocast("rnnt_joint_loss", {&encoder, &predictor, &weight, &bias});
  check_float(encoder, "rnnt_loss");
  check<ShapeError>(
      encoder.rank() == 3 && predictor.rank() == 3 && weight.rank() == 2 &&
          encoder.size(0) == predictor.size(0) && encoder.size(2) == predictor.size(2) &&
          weight.size(1) == encoder.size(2),
      "rnnt_loss",
      "needs an encoder [N, T, D], a predictor [N, U + 1, D] and a weight [C, D], got "
      "{}, {} and {}",
      encoder, predictor, weight);
  check(options.chunk >= 0, "rnnt_loss", "a chunk has one frame or more, got {}", options.chunk);
  const int64_t samples = encoder.size(0), frames = encoder.size(1), width = predictor.size(1);
  const int64_t classes = weight.size(0);
  check_lattice(samples, frames, width, classes, targets, input_lengths, target_lengths,
                options.blank);
  const Targets said(targets, options.blank);
  const int64_t bytes = samples * width * classes * static_cast<int64_t>(size_of(encoder.dtype()));
  constexpr int64_t most_bytes = 32 << 20;
  const int64_t chunk = options.chunk > 0
                            ? options.chunk
                            : std::max<int64_t>(1, most_bytes / std::max<int64_t>(1, bytes));
  TensorList blanks, labels;
  for (int64_t begin = 0; begin < frames; begin += chunk) {
    const CheckpointScope scope(chunk < frames);
    Tensor part = unsqueeze(slice(encoder, 1, begin, std::min(frames, begin + chunk)), 2);
    Tensor joint = tanh(std::move(part) + unsqueeze(predictor, 1));
    Steps steps = steps_of(linear(std::move(joint), weight, bias), said);
    blanks.push_back(std::move(steps.blank));
    labels.push_back(std::move(steps.label));
  }
  return lattice_loss({concat(std::move(blanks), 1), concat(std::move(labels), 1)},
                      std::move(input_lengths), std::move(target_lengths), options);
}

}  // namespace rw
