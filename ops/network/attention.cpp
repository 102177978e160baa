// Fused attention. Forward keeps only the log-sum-exp of the scores; gradients compute the scores
// again.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/backend/features.h"
#include "ops/detail.h"
#include "ops/layout/index.h"

namespace rw {

using namespace detail;

namespace {

struct AttentionAttrs {
  float scale, dropout;
  uint32_t flags;   // ATTENTION_*
  uint32_t window;  // queries + keys: all
  Generator::Counters counters;
};

bool has(const AttentionAttrs& a, uint32_t flag) {
  return (a.flags & flag) != 0;
}

// The kernels read whole words, so dense rows begin at multiples of this many elements.
Tensor with_whole_words(const Tensor& t) {
  const int64_t word = t.dtype() == DType::f32 ? 4 : 8;
  bool whole = t.strides()[3] == 1 && static_cast<int64_t>(t.impl().offset) % word == 0;
  for (int axis = 0; axis < 3; ++axis) whole = whole && t.strides()[axis] % word == 0;
  return whole ? t : copy_of(t, t.dtype());
}

// The operands that a call of an attention kernel reads besides its result and gradients.
struct Operands {
  Tensor q, k, v, mask, lengths;  // or starts in place of the lengths
  kernels::AttentionParams params;
};

void copy_strides(const Tensor& t, uint32_t (&to)[3]) {
  for (int axis = 0; axis < 3; ++axis) to[axis] = count32(t.strides()[axis], "attention");
}

// The stride is 0 along axes of size 1.
void copy_mask_strides(const Tensor& mask, uint32_t (&to)[3]) {
  copy_strides(mask, to);
  for (int axis = 0; axis < 3; ++axis)
    if (mask.shape()[axis] == 1) to[axis] = 0;
}

// `input(i)`: q, k, v, then mask and lengths or starts if there are any.
template <class F>
Operands operands(const AttentionAttrs& a, const F& input) {
  Operands o{with_whole_words(input(0)), with_whole_words(input(1)), with_whole_words(input(2))};
  const Shape& q = o.q.shape();
  const int64_t keys = o.k.shape()[2];
  int next = 3;
  // Bindings that the flags leave unread need a tensor all the same.
  o.mask = has(a, ATTENTION_MASK) ? Tensor(input(next++)) : empty_on(o.q, {1, 1, 1, 1}, DType::f32);
  const bool has_lengths = (a.flags & (ATTENTION_LENGTHS | ATTENTION_STARTS)) != 0;
  o.lengths = has_lengths ? contiguous(input(next)) : empty_on(o.q, {1}, DType::i32);
  if (o.mask.strides()[3] != 1) o.mask = contiguous(o.mask);

  const auto u = [](int64_t n) { return count32(n, "attention"); };
  const int64_t group = q[1] / std::max<int64_t>(1, o.k.shape()[1]);
  o.params = {.batch = u(q[0]),
              .heads = u(q[1]),
              .queries = u(q[2]),
              .keys = u(keys),
              .head = ATTENTION_HEAD(u(q[3]), a.flags, u(group)),
              .window = a.window,
              .scale = a.scale,
              .keep = 1 - a.dropout,
              // After 2^32 counters of a seed come those of another.
              .seed_lo = low(a.counters.seed),
              .seed_hi = high(a.counters.seed) ^ high(a.counters.first),
              .counter = low(a.counters.first)};
  copy_strides(o.q, o.params.q_stride);
  copy_strides(o.k, o.params.k_stride);
  copy_strides(o.v, o.params.v_stride);
  copy_mask_strides(o.mask, o.params.mask_stride);
  return o;
}

// `products` is the number of matrix products, each as large as the scores and a head.
double flops(const kernels::AttentionParams& p, int products) {
  return 2.0 * products * p.batch * p.heads * p.queries * p.keys * ATTENTION_DIM(p);
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
           o.params, {.flops = flops(o.params, 2)});
  return {heads_first(y), std::move(lse)};
}

// The gradients of the scores, summed over the axes along which the mask was broadcast.
Tensor mask_gradient(const Operands& o, const Tensor& dy, const Tensor& stats) {
  const Tensor mask = contiguous(o.mask);
  kernels::AttentionParams params = o.params;
  copy_mask_strides(mask, params.mask_stride);
  const Shape& shape = mask.shape();
  Tensor dmask = empty_on(
      stats, shape[2] == 1 ? Shape{params.batch, params.heads, 1, params.keys} : shape, DType::f32);
  launch("attention_dmask",
         {in(o.q), in(o.k), in(o.v), in(dy), in(stats), in(mask), in(o.lengths), out(dmask)},
         params, {.flops = flops(params, 2)});
  return sum_to(std::move(dmask), shape);
}

// Without queries the kernels would write nothing.
std::vector<Tensor> zero_gradients(const Record& r, const Tensor& like) {
  std::vector<Tensor> gradients(r.inputs.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Edge& input = r.inputs[i];
    if (input.requires_grad)
      gradients[i] = full(input.shape, 0, input.dtype, like.device().shared_from_this());
  }
  return gradients;
}

std::vector<Tensor> attention_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<AttentionAttrs>();
  if (dys[0].numel() == 0) return zero_gradients(r, dys[0]);
  const Operands o = operands(a, [&](int i) -> const Tensor& { return r.input(i); });
  const Tensor y = contiguous(transpose(r.output(0), 1, 2)),
               dy = contiguous(transpose(std::move(dys[0]), 1, 2));
  const Shape& q = o.q.shape();
  const Tensor stats = empty_on(y, {q[0], q[1], q[2], 2}, DType::f32);
  const uint32_t rows = count32(q[0] * q[1] * q[2], "attention");
  launch("attention_delta", {in(y), in(dy), in(r.output(1)), out(stats)},
         kernels::AttentionDeltaParams{.rows = rows,
                                       .heads = o.params.heads,
                                       .queries = o.params.queries,
                                       .dim = ATTENTION_DIM(o.params)},
         {.threads = {rows, 1, 1}});
  std::vector<Tensor> gradients(r.inputs.size());
  const bool needs_dq = r.needs_grad(0), needs_dkv = r.needs_grad(1) || r.needs_grad(2);
  const auto make = [&](const char* kernel, const Shape& shape, int products) {
    Tensor d = empty_on(y, shape, y.dtype());
    launch(kernel,
           {in(o.q), in(o.k), in(o.v), in(dy), in(stats), in(o.mask), in(o.lengths), out(d)},
           o.params, {.flops = flops(o.params, products)});
    return d;
  };
  Tensor dq, dkv;
  const Shape of_keys = {2, q[0], o.k.shape()[2], o.k.shape()[1], q[3]};
  if (needs_dq && needs_dkv && y.device().info().has(joint_attention_grad)) {
    const int64_t count = of_keys.numel();
    const Tensor both = make("attention_grad", {count + y.numel()}, 5);
    dkv = reshape(slice(both, 0, 0, count), of_keys);
    dq = reshape(slice(both, 0, count, count + y.numel()), y.shape());
  } else {
    if (needs_dq) dq = make("attention_dq", y.shape(), 3);
    if (needs_dkv) dkv = make("attention_dkv", of_keys, 4);
  }
  if (needs_dq) gradients[0] = heads_first(dq);
  for (int i = 0; i < 2; ++i)
    if (r.needs_grad(1 + i)) gradients[1 + i] = heads_first(select(dkv, 0, i));
  if (has(a, ATTENTION_MASK) && r.needs_grad(3)) gradients[3] = mask_gradient(o, dy, stats);
  return gradients;
}

const Op attention_op = {
    .name = "attention",
    .forward = attention_forward,
    .vjp = attention_vjp,
    .saves =
        [](const std::any& attrs, uint32_t) {
          const auto& a = std::any_cast<const AttentionAttrs&>(attrs);
          const int more =
              std::popcount(a.flags & (ATTENTION_MASK | ATTENTION_LENGTHS | ATTENTION_STARTS));
          return Saves{(8u << more) - 1, 3};
        },
    .is_heavy = true,
    .saves_8_bits = true};

void check_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  check<ShapeError>(q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() &&
                        q.shape()[0] == k.shape()[0] && q.shape()[3] == k.shape()[3],
                    "attention", "needs q [B, H, S, D] and k, v [B, K, T, D], got {}, {} and {}", q,
                    k, v);
  const int64_t heads = q.shape()[1], key_heads = k.shape()[1];
  check<ShapeError>(heads == key_heads ||
                        (key_heads > 0 && heads % key_heads == 0 && heads / key_heads < 1 << 16),
                    "attention", "the heads of k and v must divide those of q, got {} and {}", k,
                    q);
  check<ShapeError>(q.shape()[3] >= 1 && q.shape()[3] <= ATTENTION_MAX_DIM && k.shape()[2] > 0,
                    "attention", "D must be 1 to {} and there must be keys, got {} and {}",
                    ATTENTION_MAX_DIM, q, k);
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
}

void check_starts(const Tensor& starts, const Shape& scores) {
  check<ShapeError>(starts.shape() == Shape{scores[0], scores[2]}, "attention",
                    "starts must be [B, S] of {}, got {}", scores, starts);
  check<DTypeError>(starts.dtype() == DType::i32, "attention", "starts must be i32, got {}",
                    starts);
  check_indices("attention", "the start", starts, scores[3]);
}

// Slopes [H] or [B, H], which take the place of a mask, as [1 or B, H, 1, 1].
Tensor slopes_as_mask(const Tensor& slopes, const Shape& scores) {
  check<ShapeError>(
      slopes.shape() == Shape{scores[1]} || slopes.shape() == Shape{scores[0], scores[1]},
      "attention", "the slopes must be [H] or [B, H] of {}, got {}", scores, slopes);
  check<DTypeError>(slopes.dtype() == DType::f32, "attention", "the slopes must be f32, got {}",
                    slopes);
  check<AutogradError>(!slopes.requires_grad(), "attention",
                       "the slopes get no gradient: detach them");
  return reshape(slopes, {slopes.rank() == 1 ? 1 : scores[0], scores[1], 1, 1});
}

}  // namespace

Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options, Tensor mask,
                 Tensor lengths) {
  const AutocastInputs autocast("attention", {&q, &k, &v});
  check_shapes(q, k, v);
  check(std::isfinite(options.scale), "attention", "the scale must be finite, got {}",
        options.scale);
  check(options.dropout >= 0 && options.dropout < 1, "attention",
        "dropout must be in [0, 1), got {}", options.dropout);
  check(options.window >= 0, "attention", "the window must not be negative, got {}",
        options.window);
  check(!lengths || !options.starts, "attention", "takes lengths or starts, not both");
  check(!mask || !options.alibi, "attention",
        "takes a mask or slopes, not both: add -slope * |i - j| to the mask");
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

  const Shape scores = {q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
  const int64_t all = scores[2] + scores[3];
  AttentionAttrs attrs{
      scale,
      options.dropout,
      options.causal ? ATTENTION_CAUSAL : 0u,
      count32(options.window > 0 ? std::min(options.window, all) : all, "attention"),
      {}};
  if (options.lower_right) attrs.flags |= ATTENTION_LOWER_RIGHT;
  TensorList inputs(std::move(q), std::move(k), std::move(v));
  if (mask) {
    while (mask.rank() < 4) mask = unsqueeze(std::move(mask), 0);
    check_mask(mask, scores);
    attrs.flags |= ATTENTION_MASK;
    inputs.push_back(std::move(mask));
  } else if (options.alibi) {
    attrs.flags |= ATTENTION_MASK | ATTENTION_ALIBI;
    inputs.push_back(slopes_as_mask(options.alibi, scores));
  }
  if (lengths) {
    check(lengths.shape() == Shape{scores[0]} && lengths.dtype() == DType::i32, "attention",
          "lengths must be i32 ({}), got {}", scores[0], lengths);
    check_indices("attention", "the length", lengths, scores[3]);
    attrs.flags |= ATTENTION_LENGTHS;
    inputs.push_back(std::move(lengths));
  } else if (options.starts) {
    check_starts(options.starts, scores);
    attrs.flags |= ATTENTION_STARTS;
    inputs.push_back(options.starts);
  }
  if (options.dropout > 0) {
    // The kernels number rows and keys in other words of the counter: one is enough.
    attrs.counters = (options.generator ? *options.generator : default_generator()).take(1);
  }
  return apply1(attention_op, attrs, std::move(inputs));
}

}  // namespace rw
