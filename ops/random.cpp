// Random ops. The counters are attributes, so replay draws the same numbers.
#include "core/autograd/gradient_op.h"
#include "ops/detail.h"

namespace rw {

using namespace detail;

namespace {

struct DropoutAttrs {
  float p;
  Generator::Counters counters;
};

// Overwrites x if this was its last handle.
Tensor drop(Tensor& x_in, const DropoutAttrs& a) {
  Tensor y = reuse_or_empty(x_in, x_in.shape(), x_in.dtype());
  const Tensor x = contiguous(x_in);
  launch("dropout", {in(x), out(y)},
         kernels::DropoutParams{.n = count32(x.numel(), "dropout"),
                                .keep = 1 - a.p,
                                .seed_lo = low(a.counters.seed),
                                .seed_hi = high(a.counters.seed),
                                .counter_lo = low(a.counters.first),
                                .counter_hi = high(a.counters.first)},
         {.threads = {flat_threads(x.numel()), 1, 1}, .variant = {is_flat(x)}});
  return y;
}

std::vector<Tensor> dropout_forward(const std::any& attrs, std::span<Tensor> inputs) {
  return one(drop(inputs[0], std::any_cast<const DropoutAttrs&>(attrs)));
}

std::vector<Tensor> dropout_vjp(Record& r, std::span<Tensor> dy) {
  return one(drop(dy[0], r.attributes<DropoutAttrs>()));
}

const Op dropout_op = {
    .name = "dropout", .forward = dropout_forward, .vjp = dropout_vjp, .second = linear_second};

struct RandomAttrs {
  Shape shape;
  DType dtype;
  uint32_t kind;
  float a, b;
  Generator::Counters counters;
  std::shared_ptr<Device> device;
};

// The op has no inputs; inside a segment it is a record all the same, and replays.
std::vector<Tensor> random_forward(const std::any& attrs, std::span<Tensor>) {
  const auto& r = std::any_cast<const RandomAttrs&>(attrs);
  Tensor y = empty(r.shape, r.dtype, r.device);
  launch("random", {out(y)},
         kernels::RandomParams{.n = count32(y.numel(), "random"),
                               .a = r.a,
                               .b = r.b,
                               .seed_lo = low(r.counters.seed),
                               .seed_hi = high(r.counters.seed),
                               .counter_lo = low(r.counters.first),
                               .counter_hi = high(r.counters.first)},
         {.threads = {flat_threads(y.numel()), 1, 1}, .variant = {r.kind}});
  return one(std::move(y));
}

const Op random_ops[] = {{"rand", random_forward}, {"randn", random_forward}};  // by kind

Tensor random(uint32_t kind, const Shape& shape, float a, float b, DType dtype,
              Generator& generator) {
  const Op& op = random_ops[kind];
  check<DTypeError>(is_float(dtype), op.name, "needs f32 or f16, got {}", name(dtype));
  check_sizes(op.name, shape, size_of(dtype));
  const auto counters = generator.take(static_cast<uint64_t>(shape.numel()));
  return apply1(op, RandomAttrs{shape, dtype, kind, a, b, counters, default_device()}, {});
}

}  // namespace

Tensor rand(const Shape& shape, float low, float high, DType dtype, Generator& generator) {
  return random(0, shape, low, high, dtype, generator);
}

Tensor randn(const Shape& shape, float mean, float std, DType dtype, Generator& generator) {
  return random(1, shape, mean, std, dtype, generator);
}

Tensor dropout(Tensor x, float p, Generator& generator) {
  check_float(x, "dropout");
  check(p >= 0 && p < 1, "dropout", "p must be in [0, 1), got {}", p);
  if (p == 0) return x;
  const auto counters = generator.take(static_cast<uint64_t>(x.numel()));
  return apply1(dropout_op, DropoutAttrs{p, counters}, std::move(x));
}

}  // namespace rw
