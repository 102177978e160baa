// Group and instance normalisation. A group's elements are spread over all rows of its sample, so
// its statistics (f32) are computed in levels: blocks of rows and channels first, which are then
// combined.
#include <numeric>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/network/layer_norm.h"

namespace rw {

using namespace detail;

namespace {

struct GroupAttrs {
  int64_t groups;
  float eps;
};

uint32_t group_norm32(int64_t n) {
  return count32(n, "group_norm");
}

int64_t group_parts(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// x as [samples, rows, channels].
struct Layout {
  int64_t samples, rows, channels, groups;
  int64_t chunk;  // rows that one thread sums

  Layout(const Tensor& x, int64_t groups_)
      : samples(x.shape()[0]), channels(x.size(-1)), groups(groups_) {
    rows = x.numel() / samples / channels;
    chunk = std::clamp<int64_t>(group_parts(rows, 256), 64, 32768);
  }

  int64_t width() const { return channels / groups; }
  int64_t chunks() const { return group_parts(rows, chunk); }
  // The number of channels that one thread joins to a block.
  int64_t merged() const { return std::gcd(width(), int64_t{8}); }
  uint32_t threads(int64_t run) const {
    return group_norm32(samples * group_parts(rows, run) * group_parts(channels, 8));
  }

  // Calls body(slice, first sample) for slices of samples that are small enough for partial results
  // of `each` elements per sample to stay small beside x, however few rows a sample has.
  template <class F>
  void for_each_slice(int64_t each, const F& body) const {
    const int64_t limit = std::max<int64_t>(samples * rows * channels / 64, 1 << 18);
    const int64_t step = std::clamp<int64_t>(limit / each, 1, samples);
    for (int64_t at = 0; at < samples; at += step) {
      Layout slice = *this;
      slice.samples = std::min(step, samples - at);
      body(slice, at);
    }
  }
  // The slice's part of t [all samples, ...].
  Tensor part(const Tensor& t, int64_t at) const {
    Shape shape = t.shape();
    shape[0] = samples;
    return make_view(t, shape, t.strides(), t.impl().offset + at * t.strides()[0]);
  }
};

bool is_whole(const Layout& l, std::initializer_list<const Tensor*> tensors) {
  return l.channels % REWIND_FLAT == 0 &&
         std::all_of(tensors.begin(), tensors.end(), [](const Tensor* t) { return is_flat(*t); });
}

// Writes stats [samples, groups, 2]: mean and 1 / deviation.
void find_stats(const Layout& l, const Tensor& x, float eps, const Tensor& stats) {
  int64_t blocks = l.chunks() * (l.width() / l.merged());
  Tensor moments = empty_on(x, {l.samples, l.groups, blocks, 3}, DType::f32);
  launch("group_norm_stats", {in(x), out(moments)},
         kernels::GroupNormParams{.samples = group_norm32(l.samples),
                                  .rows = group_norm32(l.rows),
                                  .channels = group_norm32(l.channels),
                                  .width = group_norm32(l.width()),
                                  .chunk_rows = group_norm32(l.chunk),
                                  .merged = group_norm32(l.merged())},
         {.threads = {l.threads(l.chunk), 1, 1}, .variant = {is_whole(l, {&x})}});
  while (true) {
    const int64_t runs = group_parts(blocks, GROUP_NORM_BLOCKS);
    const Tensor combined =
        runs == 1 ? stats : empty_on(x, {l.samples, l.groups, runs, 3}, DType::f32);
    launch("group_norm_combine", {in(moments), out(combined)},
           kernels::GroupNormCombineParams{.groups = group_norm32(l.samples * l.groups),
                                           .blocks = group_norm32(blocks),
                                           .eps = eps},
           {.threads = {group_norm32(l.samples * l.groups * runs), 1, 1}, .variant = {runs == 1}});
    if (runs == 1) return;
    moments = combined;
    blocks = runs;
  }
}

// Inputs x, weight, bias. Outputs y and stats.
std::vector<Tensor> group_norm_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const GroupAttrs&>(attrs);
  Tensor copy;  // inputs stay where they are: their records live as long as they
  if (!inputs[0].is_contiguous()) copy = contiguous(inputs[0]);
  Tensor& x = copy.defined() ? copy : inputs[0];
  const Tensor weight = contiguous(inputs[1]), bias = contiguous(inputs[2]);
  const Layout all(x, a.groups);
  const Tensor y =
      empty_on(x, x.shape(), x.dtype());  // not over x: all read their group's first element
  const Tensor stats = empty_on(x, {all.samples, all.groups, 2}, DType::f32);
  const int64_t moments = 3 * all.groups * all.chunks() * (all.width() / all.merged());
  all.for_each_slice(moments, [&](const Layout& l, int64_t at) {
    const Tensor from = l.part(x, at), to = l.part(y, at), s = l.part(stats, at);
    find_stats(l, from, a.eps, s);
    launch("group_norm", {in(from), in(s), in(weight), in(bias), out(to)},
           kernels::GroupNormParams{.samples = group_norm32(l.samples),
                                    .rows = group_norm32(l.rows),
                                    .channels = group_norm32(l.channels),
                                    .width = group_norm32(l.width())},
           {.threads = {l.threads(GROUP_NORM_ROWS), 1, 1},
            .variant = {is_whole(l, {&from, &to, &weight, &bias})}});
  });
  return {y, stats};
}

// [samples, 2, channels] f32: each sample's sums of dy * xhat and of dy.
Tensor channel_sums(const Layout& l, const Tensor& x, const Tensor& dy, const Tensor& stats) {
  const Tensor partial = empty_on(x, {l.samples, l.chunks(), 2, l.channels}, DType::f32);
  launch("group_norm_grad_stats", {in(x), in(dy), in(stats), out(partial)},
         kernels::GroupNormParams{.samples = group_norm32(l.samples),
                                  .rows = group_norm32(l.rows),
                                  .channels = group_norm32(l.channels),
                                  .width = group_norm32(l.width()),
                                  .chunk_rows = group_norm32(l.chunk)},
         {.threads = {l.threads(l.chunk), 1, 1}, .variant = {is_whole(l, {&x, &dy})}});
  return l.chunks() == 1 ? reshape(partial, {l.samples, 2, l.channels}) : sum(partial, {1});
}

void write_dx(const Layout& l, const Tensor& x, const Tensor& dy, const Tensor& stats,
              const Tensor& weight, const Tensor& sums, const Tensor& dx) {
  const Tensor of_groups =
      sum(reshape(mul(sums, weight), {l.samples, 2, l.groups, l.width()}), {3});
  launch("group_norm_grad", {in(x), in(dy), in(stats), in(weight), in(of_groups), out(dx)},
         kernels::GroupNormParams{.samples = group_norm32(l.samples),
                                  .rows = group_norm32(l.rows),
                                  .channels = group_norm32(l.channels),
                                  .width = group_norm32(l.width())},
         {.threads = {l.threads(GROUP_NORM_ROWS), 1, 1},
          .variant = {is_whole(l, {&x, &dy, &weight, &dx})}});
}

// dx overwrites dy if nobody else holds it.
std::vector<Tensor> group_norm_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor x = contiguous(r.input(0)), &stats = r.output(1);
  const Tensor weight = r.needs_grad(0) ? contiguous(r.input(1)) : Tensor();
  Tensor dy = contiguous(std::exchange(dys[0], {})), dx, total;
  if (r.needs_grad(0)) dx = reuse_or_empty(dy, x.shape(), x.dtype());
  const Layout all(x, r.attributes<GroupAttrs>().groups);
  all.for_each_slice(2 * all.channels * all.chunks(), [&](const Layout& l, int64_t at) {
    const Tensor x_part = l.part(x, at), dy_part = l.part(dy, at), s = l.part(stats, at);
    const Tensor sums = channel_sums(l, x_part, dy_part, s);
    if (dx.defined()) write_dx(l, x_part, dy_part, s, weight, sums, l.part(dx, at));
    if (!r.needs_grad(1) && !r.needs_grad(2)) return;
    const Tensor of_samples = sum(sums, {0});
    if (total.defined())
      accumulate(of_samples, total);
    else
      total = of_samples;
  });
  if (!total.defined()) return {std::move(dx), {}, {}};
  return {std::move(dx), select(total, 0, 0), select(total, 0, 1)};
}

void group_norm_second(SecondOrder& s) {
  const auto& a = s.attributes<GroupAttrs>();
  const Shape shape = s.of().inputs[0].shape;
  const int64_t samples = shape[0], channels = shape[shape.rank() - 1], width = channels / a.groups;
  const Shape grouped = {samples, shape.numel() / samples / channels, a.groups, width};
  const auto as = [](const Tensor& t, const Shape& to) {
    return t.defined() ? reshape(wide(t), to) : Tensor();
  };
  const Shape of_channels = {a.groups, width};
  const auto [x, weight, dy] =
      norm_second({.x = as(s.input(0), grouped),
                   .weight = s.g(0) ? as(s.input(1), of_channels) : Tensor(),
                   .dy = as(s.dy(), grouped),
                   .g_x = as(s.g(0), grouped),
                   .g_weight = as(s.g(1), of_channels),
                   .g_bias = as(s.g(2), of_channels),
                   .axes = {1, 3},
                   .eps = a.eps});
  s.give_input(0, as(x, shape));
  s.give_input(1, as(weight, {channels}));
  s.give_dy(as(dy, shape));
}

// Like layer_norm's, every gradient reads x and the statistics; the gradient of x also reads the
// weight.
Saves saves(const std::any&, uint32_t needs) {
  return {needs & 1 ? 3u : 1u, 2};
}

const Op group_norm_op = {.name = "group_norm",
                          .forward = group_norm_forward,
                          .vjp = group_norm_vjp,
                          .saves = saves,
                          .saves_8_bits = true,
                          .second = group_norm_second};
const Op instance_norm_op = {.name = "instance_norm",
                             .forward = group_norm_forward,
                             .vjp = group_norm_vjp,
                             .saves = saves,
                             .saves_8_bits = true,
                             .second = group_norm_second};

void check_input(const Tensor& x, const char* op) {
  check_float(x, op);
  check<ShapeError>(x.rank() >= 2 && x.numel() > 0, op, "needs a non-empty [N, ..., C], got {}", x);
}

Tensor run(const Op& op, const GroupAttrs& attrs, Tensor x, Tensor weight, Tensor bias) {
  const AutocastInputs autocast(op.name, {&x});
  check_eps(attrs.eps, op.name);
  weight = per_channel(weight, 1, x, op.name);
  bias = per_channel(bias, 0, x, op.name);
  return apply1(op, attrs, std::move(x), std::move(weight), std::move(bias));
}

}  // namespace

Tensor group_norm(Tensor x, int64_t groups, Tensor weight, Tensor bias, float eps) {
  check_input(x, "group_norm");
  check<ShapeError>(groups > 0 && x.size(-1) % groups == 0, "group_norm",
                    "groups must divide the channels, got {} for {}", groups, x);
  return run(group_norm_op, {groups, eps}, std::move(x), std::move(weight), std::move(bias));
}

Tensor instance_norm(Tensor x, Tensor weight, Tensor bias, float eps) {
  check_input(x, "instance_norm");
  check<ShapeError>(x.numel() > x.shape()[0] * x.size(-1), "instance_norm",
                    "needs more than one element per sample and channel, got {}", x);
  const int64_t channels = x.size(-1);
  return run(instance_norm_op, {channels, eps}, std::move(x), std::move(weight), std::move(bias));
}

}  // namespace rw
