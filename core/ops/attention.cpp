// Fused attention. The forward keeps the scores' log-sum-exp only; gradients make the scores again.
#include <algorithm>
#include <bit>
#include <cmath>

#include "rewind/core/backend/attention_tiles.h"
#include "rewind/core/ops/detail.h"

namespace rw {

using namespace detail;

namespace {

struct AttentionAttrs {
  float scale, dropout;
  uint32_t flags;  // ATTENTION_*
  Generator::Counters counters;
};

bool has(const AttentionAttrs& a, uint32_t flag) {
  return (a.flags & flag) != 0;
}

// The kernels read whole words: dense rows that begin at multiples of four elements.
Tensor with_whole_words(const Tensor& t) {
  bool whole = t.strides()[3] == 1 && t.impl().offset % 4 == 0;
  for (int axis = 0; axis < 3; ++axis) whole = whole && t.strides()[axis] % 4 == 0;
  return whole ? t : copy_of(t, t.dtype());
}

// What one call of an attention kernel reads besides its result and gradients.
struct Operands {
  Tensor q, k, v, mask, lengths;
  kernels::AttentionParams params;
};

void copy_strides(const Tensor& t, uint32_t (&to)[3]) {
  for (int axis = 0; axis < 3; ++axis) to[axis] = count32(t.strides()[axis], "attention");
}

// `input(i)`: q, k, v, then mask and lengths if there are any.
template <class F>
Operands operands(const AttentionAttrs& a, const F& input) {
  Operands o{with_whole_words(input(0)), with_whole_words(input(1)), with_whole_words(input(2))};
  const Shape& q = o.q.shape();
  const int64_t keys = o.k.shape()[2];
  int next = 3;
  // Bindings that the flags leave unread still need a tensor.
  o.mask = has(a, ATTENTION_MASK) ? Tensor(input(next++)) : empty_on(o.q, {1, 1, 1, 1}, DType::f32);
  o.lengths = has(a, ATTENTION_LENGTHS) ? contiguous(input(next)) : empty_on(o.q, {1}, DType::i32);
  if (o.mask.strides()[3] != 1) o.mask = contiguous(o.mask);

  const auto u = [](int64_t n) { return count32(n, "attention"); };
  o.params = {.batch = u(q[0]),
              .heads = u(q[1]),
              .queries = u(q[2]),
              .keys = u(keys),
              .dim = u(q[3]),
              .flags = a.flags,
              .scale = a.scale,
              .keep = 1 - a.dropout,
              .seed_lo = low(a.counters.seed),
              .seed_hi = high(a.counters.seed),
              .counter_lo = low(a.counters.first),
              .counter_hi = high(a.counters.first)};
  copy_strides(o.q, o.params.q_stride);
  copy_strides(o.k, o.params.k_stride);
  copy_strides(o.v, o.params.v_stride);
  if (has(a, ATTENTION_MASK)) {
    const Shape full = {q[0], q[1], q[2], keys};
    const Strides strides = broadcast_strides(o.mask.shape(), o.mask.strides(), full);
    for (int axis = 0; axis < 3; ++axis) o.params.mask_stride[axis] = u(strides[axis]);
  }
  return o;
}

// Stock lavapipe leaves a thread's loops after 65535 rounds in all, without a word
// (docs/kernels.md).
void check_rounds(const DeviceInfo& device, int64_t columns, int64_t dim) {
  if (!device.is_cpu || device.subgroup_size == 1) return;  // subgroups of 1: the cpu backend
  const int64_t lanes = device.subgroup_size;
  const int64_t plain = 15 + 2 * ((dim + 31) / 32);  // rounds for a key in attention_plain.glsl
  const bool is_plain = !device.has("subgroup shuffle") || !device.has("buffer addresses");
  const int64_t products = dim / 4 + dim / (4 * lanes) + 1, draws = 16;
  const int64_t tile_rounds = 1 + 2 * products + draws + 2 * lanes;
  const int64_t most = is_plain ? 65535 / plain : 65535 / tile_rounds * 4 * lanes;
  check<ShapeError>(columns <= most, "attention",
                    "this device takes at most {} queries and keys of {} dimensions, got {}", most,
                    dim, columns);
}

// Tiles of a result of `rows` rows per head.
Launch tiles(std::string_view kernel, const AttentionAttrs& a, const Operands& o, int64_t rows,
             int products) {
  const DeviceInfo& device = o.q.device().info();
  check_rounds(device, std::max(o.params.queries, o.params.keys), o.params.dim);
  const uint32_t lanes = device.subgroup_size, tile_rows = attention_rows(device);
  const uint32_t width = attention_width(device, o.params.dim, kernel);
  const int64_t columns = lanes * width;
  const int64_t count = int64_t{o.params.batch} * o.params.heads *
                        ((rows + tile_rows - 1) / tile_rows) *
                        ((o.params.dim + columns - 1) / columns);
  const double scores = double(o.params.batch) * o.params.heads * o.params.queries * o.params.keys;
  return {.threads = {count32(count * lanes, "attention"), 1, 1},
          .variant = {has(a, ATTENTION_MASK), tile_rows, width},
          .flops = 2 * products * scores * o.params.dim};
}

// [B, rows, H, D] storage as [B, H, rows, D].
Tensor heads_first(const Tensor& t) {
  return transpose(t, 1, 2);
}

std::vector<Tensor> attention_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& a = std::any_cast<const AttentionAttrs&>(attrs);
  const Operands o = operands(a, [&](int i) -> const Tensor& { return inputs[i]; });
  const Shape& q = o.q.shape();
  Tensor y = empty_on(o.q, {q[0], q[2], q[1], q[3]}, o.q.dtype());
  Tensor lse = empty_on(o.q, {q[0], q[1], q[2]}, DType::f32);
  if (y.numel() > 0)
    launch("attention", {in(o.q), in(o.k), in(o.v), in(o.mask), in(o.lengths), out(y), out(lse)},
           o.params, tiles("attention", a, o, q[2], 2));
  return {heads_first(y), std::move(lse)};
}

std::vector<Tensor> attention_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<AttentionAttrs>();
  const Operands o = operands(a, [&](int i) -> const Tensor& { return r.input(i); });
  const Tensor y = contiguous(transpose(r.output(0), 1, 2)),
               dy = contiguous(transpose(std::move(dys[0]), 1, 2));
  const Shape& q = o.q.shape();
  const int64_t keys = o.k.shape()[2];
  Tensor stats = empty_on(y, {q[0], q[1], q[2], 2}, DType::f32), dq, dkv;
  const uint32_t rows = count32(q[0] * q[1] * q[2], "attention");
  launch(
      "attention_delta", {in(y), in(dy), in(r.output(1)), out(stats)},
      kernels::AttentionDeltaParams{
          .rows = rows, .heads = o.params.heads, .queries = o.params.queries, .dim = o.params.dim},
      {.threads = {rows, 1, 1}});
  std::vector<Tensor> gradients(r.inputs.size());
  if (r.needs_grad(0)) {
    dq = empty_on(y, y.shape(), y.dtype());
    launch("attention_dq",
           {in(o.q), in(o.k), in(o.v), in(dy), in(stats), in(o.mask), in(o.lengths), out(dq)},
           o.params, tiles("attention_dq", a, o, q[2], 3));
    gradients[0] = heads_first(dq);
  }
  if (r.needs_grad(1) || r.needs_grad(2)) {
    dkv = empty_on(y, {2, q[0], keys, q[1], q[3]}, y.dtype());
    launch("attention_dkv",
           {in(o.q), in(o.k), in(o.v), in(dy), in(stats), in(o.mask), in(o.lengths), out(dkv)},
           o.params, tiles("attention_dkv", a, o, keys, 4));
    for (int i = 0; i < 2; ++i)
      if (r.needs_grad(1 + i)) gradients[1 + i] = heads_first(select(dkv, 0, i));
  }
  return gradients;
}

const Op attention_op = {.name = "attention",
                         .forward = attention_forward,
                         .vjp = attention_vjp,
                         .saves =
                             [](const std::any& attrs, uint32_t) {
                               const auto& a = std::any_cast<const AttentionAttrs&>(attrs);
                               const int more =
                                   std::popcount(a.flags & (ATTENTION_MASK | ATTENTION_LENGTHS));
                               return Saves{(8u << more) - 1, 3};
                             },
                         .is_heavy = true};

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  check<ShapeError>(
      q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.shape()[0] == k.shape()[0] &&
          q.shape()[1] == k.shape()[1] && q.shape()[3] == k.shape()[3],
      "attention", "needs q [B, H, S, D] and k, v [B, H, T, D], got {}, {} and {}", q, k, v);
  check<ShapeError>(q.shape()[3] >= 1 && q.shape()[3] <= most_head_dim && k.shape()[2] > 0,
                    "attention", "D must be 1 to {} and there must be keys, got {} and {}",
                    most_head_dim, q, k);
  check<DTypeError>(is_float(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
                    "attention", "q, k and v must be float of one dtype, got {}, {} and {}; cast",
                    q, k, v);
}

void check_mask(const Tensor& mask, const Shape& scores) {
  bool fits = mask.rank() == 4;
  for (int axis = 0; fits && axis < 4; ++axis)
    fits = mask.shape()[axis] == scores[axis] || (axis < 3 && mask.shape()[axis] == 1);
  check<ShapeError>(fits, "attention", "the mask must be [B or 1, H or 1, S or 1, T] of {}, got {}",
                    scores, mask);
  check<DTypeError>(mask.dtype() == DType::f32, "attention", "the mask must be f32, got {}", mask);
  check<AutogradError>(!mask.requires_grad(), "attention", "the mask gets no gradient: detach it");
}

}  // namespace

Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options, Tensor mask,
                 Tensor lengths) {
  q = Autocast::input(std::move(q));
  k = Autocast::input(std::move(k));
  v = Autocast::input(std::move(v));
  check_shapes(q, k, v);
  check(options.dropout >= 0 && options.dropout < 1, "attention",
        "dropout must be in [0, 1), got {}", options.dropout);
  const int64_t dim = q.shape()[3];
  const float scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<float>(dim));
  if (const int64_t missing = (8 - dim % 8) % 8) {  // zeros change no score
    const auto wider = [&](Tensor& t) {
      return pad(std::move(t), {0, 0, 0, 0}, {0, 0, 0, missing});
    };
    AttentionOptions scaled = options;
    scaled.scale = scale;
    return slice(attention(wider(q), wider(k), wider(v), scaled, mask, lengths), 3, 0, dim);
  }

  AttentionAttrs attrs{scale, options.dropout, options.causal ? ATTENTION_CAUSAL : 0u, {}};
  const Shape scores = {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  TensorList inputs(std::move(q), std::move(k), std::move(v));
  if (mask) {
    check_mask(mask, scores);
    attrs.flags |= ATTENTION_MASK;
    inputs.push_back(std::move(mask));
  }
  if (lengths) {
    check(lengths.shape() == Shape{scores[0]} && lengths.dtype() == DType::i32, "attention",
          "lengths must be i32 ({}), got {}", scores[0], lengths);
    check_indices("attention", "the length", lengths, scores[3]);
    attrs.flags |= ATTENTION_LENGTHS;
    inputs.push_back(std::move(lengths));
  }
  if (options.dropout > 0) {
    // The kernels number rows and keys in other words of the counter: one is enough.
    attrs.counters = (options.generator ? *options.generator : default_generator()).take(1);
  }
  return apply1(attention_op, attrs, std::move(inputs));
}

}  // namespace rw
