// Batch normalisation over all axes but the last, statistics in f32.
#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/network/layer_norm.h"
#include "ops/operators.h"

namespace rw {

using namespace detail;

namespace {

uint32_t batch_norm32(int64_t n) {
  return count32(n, "batch_norm");
}

std::array<uint32_t, 3> apply_threads(const Tensor& x) {
  const int64_t channels = x.size(-1), rows = x.numel() / channels;
  return {flat_threads(channels) * batch_norm32((rows + BATCH_NORM_ROWS - 1) / BATCH_NORM_ROWS), 1,
          1};
}

// Whether a mean has its rest beside it: [2, C] in place of [C].
bool has_rest(const Tensor& mean) {
  return mean.rank() == 2;
}

Tensor normalise(const Tensor& x, const Tensor& mean_in, const Tensor& var_in,
                 const Tensor& weight_in, const Tensor& bias_in, float eps) {
  const Tensor mean = contiguous(mean_in), var = contiguous(var_in);
  const Tensor weight = contiguous(weight_in), bias = contiguous(bias_in);
  Tensor y = empty_on(x, x.shape(), x.dtype());
  launch("batch_norm", {in(x), in(mean), in(var), in(weight), in(bias), out(y)},
         kernels::BatchNormParams{.n = batch_norm32(x.numel()),
                                  .channels = batch_norm32(x.size(-1)),
                                  .eps = eps,
                                  .has_rest = has_rest(mean)},
         {.threads = apply_threads(x)});
  return y;
}

struct BatchNormAttrs {
  float eps;
  int64_t rows;                                  // of all parts
  std::shared_ptr<StatisticsExchange> exchange;  // or null
  // The result of the exchange, for replays: other parts may be elsewhere by then.
  std::shared_ptr<std::optional<BatchStatistics>> known;
};

// The kernels' variance and the variance itself, which is infinite where f32 does not hold it.
constexpr float square_scale = NORM_SCALE * NORM_SCALE;
Tensor scaled(const Tensor& var) {
  return affine(var, square_scale, 0);
}
Tensor unscaled(const Tensor& var) {
  return affine(var, 1 / square_scale, 0);
}

// The kernels make and read the mean, the variance as scaled() gives it, and the mean with its
// rest, [2, C].
struct KernelStatistics {
  Tensor mean, var, both;
};

KernelStatistics statistics_of(const Tensor& x) {
  const int64_t c = x.size(-1), rows = x.numel() / c;
  KernelStatistics s{empty_on(x, {c}, DType::f32), empty_on(x, {c}, DType::f32),
                     empty_on(x, {2, c}, DType::f32)};
  launch("batch_norm_stats", {in(x), out(s.mean), out(s.var), out(s.both)},
         kernels::BatchNormParams{.rows = batch_norm32(rows), .channels = batch_norm32(c)}, {});
  return s;
}

BatchStatistics public_of(const KernelStatistics& s, int64_t rows) {
  return {s.mean, unscaled(s.var), rows, select(s.both, 0, 1)};
}

KernelStatistics kernels_of(const BatchStatistics& s) {
  Tensor rest = s.rest.defined()
                    ? s.rest
                    : full(s.mean.shape(), 0, DType::f32, s.mean.device().shared_from_this());
  return {s.mean, scaled(s.var), stack({s.mean, std::move(rest)}, 0)};
}

void check_statistics(const BatchStatistics& s, int64_t channels) {
  const auto fits = [&](const Tensor& t) {
    return t.defined() && t.shape() == Shape{channels} && t.dtype() == DType::f32;
  };
  check<ShapeError>(
      fits(s.mean) && fits(s.var) && (!s.rest.defined() || fits(s.rest)) && s.rows > 0,
      "batch_norm",
      "statistics must be f32 [{}] of at least one row, got mean {}, variance {} of "
      "{} rows",
      channels, s.mean, s.var, s.rows);
}

std::vector<Tensor> batch_norm_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const BatchNormAttrs&>(attrs);
  const Tensor x = contiguous(inputs[0]);
  const bool is_replay = a.known && *a.known;
  // On another device the record runs again only to measure its memory.
  const bool has_known = is_replay && &(*a.known)->mean.device() == &x.device();
  BatchStatistics all;
  KernelStatistics own;
  if (has_known) {
    all = **a.known;
  } else {
    own = statistics_of(x);
    all = public_of(own, x.numel() / x.size(-1));
  }
  if (a.exchange && !is_replay) {
    all = a.exchange->combine(std::move(all));
    check_statistics(all, x.size(-1));
    check<ShapeError>(all.rows == a.rows, "batch_norm",
                      "the exchange's statistics must be of its {} rows, got {}", a.rows, all.rows);
    *a.known = all;
  }
  if (a.exchange || has_known) own = kernels_of(all);
  Tensor y = normalise(x, own.both, own.var, inputs[1], inputs[2], a.eps);
  return {std::move(y), std::move(all.mean), std::move(all.var), std::move(own.var),
          std::move(own.both)};
}

// The gradients of x, weight and bias; mean and var are the kernels'. With `train`, they depend on
// x.
std::vector<Tensor> gradients(const Record& r, Tensor dy_in, const Tensor& x_in,
                              const Tensor& mean_in, const Tensor& var_in, const Tensor& weight_in,
                              const BatchNormAttrs& attrs, bool train) {
  const float eps = attrs.eps;
  const Tensor x = contiguous(x_in), dy = contiguous(std::move(dy_in));
  const Tensor mean = contiguous(mean_in), var = contiguous(var_in), weight = contiguous(weight_in);
  const int64_t channels = x.size(-1);
  const Tensor own = empty_on(x, {2, channels}, DType::f32);
  launch("batch_norm_grad_stats", {in(x), in(dy), in(mean), in(var), out(own)},
         kernels::BatchNormParams{.rows = batch_norm32(x.numel() / channels),
                                  .channels = batch_norm32(channels),
                                  .eps = eps,
                                  .has_rest = has_rest(mean)},
         {});
  const Tensor all = attrs.exchange ? attrs.exchange->sum(own) : own;
  check<ShapeError>(all.shape() == own.shape() && all.dtype() == DType::f32, "batch_norm",
                    "the exchange's sums must be those of {}, got {}", own, all);
  Tensor dx;
  if (r.needs_grad(0)) {
    dx = empty_on(x, x.shape(), x.dtype());
    launch("batch_norm_grad", {in(x), in(dy), in(mean), in(var), in(weight), in(all), out(dx)},
           kernels::BatchNormParams{.n = batch_norm32(x.numel()),
                                    .rows = batch_norm32(attrs.rows),
                                    .channels = batch_norm32(channels),
                                    .eps = eps,
                                    .train = train,
                                    .has_rest = has_rest(mean)},
           {.threads = apply_threads(x)});
  }
  return {std::move(dx), select(own, 0, 0), select(own, 0, 1)};
}

std::vector<Tensor> batch_norm_vjp(Record& r, std::span<Tensor> dy) {
  check<AutogradError>(!dy[1].defined() && !dy[2].defined(), "batch_norm",
                       "mean and var carry no gradient; detach them");
  return gradients(r, std::move(dy[0]), r.input(0), r.output(4), r.output(3), r.input(1),
                   r.attributes<BatchNormAttrs>(), true);
}

// x and what has its shape, as [rows, channels].
Tensor rows_of_channels(const Tensor& t) {
  return t.defined() ? reshape(wide(t), {-1, t.size(-1)}) : Tensor();
}

void batch_norm_second(SecondOrder& s) {
  const auto [x, weight, dy] = norm_second({.x = rows_of_channels(s.input(0)),
                                            .weight = s.input(1),
                                            .dy = rows_of_channels(s.dy()),
                                            .g_x = rows_of_channels(s.g(0)),
                                            .g_weight = s.g(1),
                                            .g_bias = s.g(2),
                                            .axes = {0},
                                            .eps = s.attributes<BatchNormAttrs>().eps});
  const Shape& shape = s.of().inputs[0].shape;
  if (x) s.give_input(0, reshape(x, shape));
  s.give_input(1, weight);
  if (dy) s.give_dy(reshape(dy, shape));
}

constexpr Op batch_norm_by(void (*second)(SecondOrder&)) {
  return {.name = "batch_norm",
          .forward = batch_norm_forward,
          .vjp = batch_norm_vjp,
          .saves = saves_always<3, 8 | 16>,
          .saves_8_bits = true,
          .second = second};
}

const Op batch_norm_op = batch_norm_by(batch_norm_second);
// Its gradient is an exchange with the other parts, which happens once.
const Op exchanged_batch_norm_op = batch_norm_by(nullptr);

// Inputs x, weight, bias, mean, var.
std::vector<Tensor> with_forward(const std::any& attrs, std::span<Tensor> in) {
  const auto eps = std::any_cast<float>(attrs);
  return one(normalise(contiguous(in[0]), in[3], scaled(in[4]), in[1], in[2], eps));
}

std::vector<Tensor> with_vjp(Record& r, std::span<Tensor> dy) {
  std::vector<Tensor> grads =
      gradients(r, std::move(dy[0]), r.input(0), r.input(3), scaled(r.input(4)), r.input(1),
                {r.attributes<float>(), 1, {}, {}}, false);
  grads.resize(5);
  return grads;
}

// The statistics are constants.
void with_second(SecondOrder& s) {
  const Tensor r = rsqrt(s.input(4) + s.attributes<float>()), scale = r * s.input(1);
  const Tensor h = (wide(s.input(0)) - s.input(3)) * r, dy = wide(s.dy());
  Tensor of_dy;
  const auto add = [&](Tensor t) { of_dy = of_dy ? of_dy + t : std::move(t); };
  if (s.g(0)) {
    const Tensor g = wide(s.g(0));
    add(g * scale);
    if (s.needs_input(1)) s.give_input(1, sum_to(g * dy * r, r.shape()));
  }
  if (s.g(1)) {
    add(h * s.g(1));
    if (s.needs_input(0)) s.give_input(0, dy * (s.g(1) * r));
  }
  if (s.g(2)) add(expand(s.g(2), dy.shape()));
  s.give_dy(std::move(of_dy));
}

const Op batch_norm_with_op = {.name = "batch_norm_with",
                               .forward = with_forward,
                               .vjp = with_vjp,
                               .saves = saves_always<1 | 2 | 8 | 16>,
                               .saves_8_bits = true,
                               .second = with_second};

// Casts `per_channel` to f32.
void check_inputs(const Tensor& x, std::initializer_list<Tensor*> per_channel) {
  check_float(x, "batch_norm");
  check<ShapeError>(x.rank() >= 2 && x.numel() > 0, "batch_norm",
                    "needs a non-empty [..., C], got {}", x);
  for (Tensor* t : per_channel) {
    check<ShapeError>(t->shape() == Shape{x.size(-1)} && is_float(t->dtype()), "batch_norm",
                      "weight, bias and statistics must be float [C], got {} for x {}", *t, x);
    *t = cast(std::move(*t), DType::f32);
  }
}

}  // namespace

BatchStatistics batch_statistics(const Tensor& x) {
  check_inputs(x, {});
  const NoGrad guard;
  return public_of(statistics_of(contiguous(x)), x.numel() / x.size(-1));
}

BatchStatistics combine_statistics(const std::vector<BatchStatistics>& parts) {
  check<ShapeError>(!parts.empty(), "batch_norm", "needs the statistics of at least one part");
  const NoGrad guard;
  int64_t rows = 0;
  for (const BatchStatistics& part : parts) {
    check_statistics(part, parts[0].mean.numel());
    rows += part.rows;
  }
  const auto share = [rows](const BatchStatistics& part) {
    return static_cast<double>(part.rows) / static_cast<double>(rows);
  };
  // Relative to the first mean, since rounding may count where they differ little.
  const auto above = [&base = parts[0].mean](const BatchStatistics& part) {
    const Tensor difference = part.mean - base;
    return part.rest.defined() ? difference + part.rest : difference;
  };
  Tensor offset, var;
  for (const BatchStatistics& part : parts) {
    Tensor own = above(part) * share(part);
    offset = offset ? offset + own : own;
  }
  for (const BatchStatistics& part : parts) {
    Tensor own = (part.var + square(above(part) - offset)) * share(part);
    var = var ? var + own : own;
  }
  Tensor mean = parts[0].mean + offset, rest = offset - (mean - parts[0].mean);
  return {std::move(mean), std::move(var), rows, std::move(rest)};
}

// Side effects stay off the tape, so that replay does not see them.
void update_running(const RunningStatistics& running, const BatchStatistics& batch) {
  const NoGrad guard;
  check(running.momentum >= 0 && running.momentum <= 1, "batch_norm",
        "the momentum must be in [0, 1], got {}", running.momentum);
  const auto rows = static_cast<float>(batch.rows);
  const float unbias = batch.rows > 1 ? rows / (rows - 1) : 1;
  accumulate(sub(batch.mean, running.mean), running.mean, running.momentum);
  accumulate(sub(affine(batch.var, unbias, 0), running.var), running.var, running.momentum);
}

BatchNormResult batch_norm(Tensor x, Tensor weight, Tensor bias, float eps,
                           std::shared_ptr<StatisticsExchange> exchange) {
  const AutocastInputs autocast("batch_norm", {&x});
  check_inputs(x, {&weight, &bias});
  check_eps(eps, "batch_norm");
  const int64_t own = x.numel() / x.size(-1), rows = exchange ? exchange->rows(own) : own;
  auto known = exchange ? std::make_shared<std::optional<BatchStatistics>>() : nullptr;
  const Op& op = exchange ? exchanged_batch_norm_op : batch_norm_op;
  auto outputs = apply(op, BatchNormAttrs{eps, rows, std::move(exchange), known},
                       TensorList(std::move(x), std::move(weight), std::move(bias)));
  return {std::move(outputs[0]), outputs[1].detach(), outputs[2].detach(), rows};
}

Tensor batch_norm_with(Tensor x, Tensor mean, Tensor var, Tensor weight, Tensor bias, float eps) {
  const AutocastInputs autocast("batch_norm", {&x});
  check_inputs(x, {&mean, &var, &weight, &bias});
  check_eps(eps, "batch_norm");
  return apply1(batch_norm_with_op, eps, std::move(x), std::move(weight), std::move(bias),
                std::move(mean), std::move(var));
}

}  // namespace rw
