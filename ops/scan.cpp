// Running sums, products and logarithms of sums along an axis.
#include <limits>

#include "ops/detail.h"
#include "ops/layout/indexing.h"
#include "ops/operators.h"
#include "ops/reduce.h"

namespace rw {

using namespace detail;

namespace {

enum ScanKind : uint32_t { scan_sum, scan_prod, scan_logsumexp };

struct ScanAttrs {
  ScanKind kind;
  int axis;
  bool reverse;
};

// Long axes are cut into chunks, each of which starts from the total of the chunks before it.
Tensor scan_dense(const Tensor& x, const Around& around, ScanKind kind, bool reverse) {
  const int64_t outer = around.outer, count = around.count, inner = around.inner;
  constexpr int64_t chunk = 1024;
  const int64_t chunks = (count + chunk - 1) / chunk;
  const DType sums = x.dtype() == DType::i32 ? DType::i32 : DType::f32;
  const auto u = [](int64_t n) { return count32(n, "scan"); };
  const auto pass = [&](const Tensor& carry, const Tensor& y, bool has_carry, bool totals) {
    launch("scan", {in(x), in(carry), out(y)},
           kernels::ScanParams{.outer = u(outer),
                               .count = u(count),
                               .inner = u(inner),
                               .chunk = chunk,
                               .chunks = u(chunks),
                               .reverse = reverse},
           {.threads = {u(outer * chunks * inner), 1, 1}, .variant = {kind, has_carry, totals}});
  };
  Tensor carry = empty_on(x, {1}, sums);  // not read
  if (chunks > 1) {
    const Tensor totals = empty_on(x, {outer, chunks, inner}, sums);
    pass(carry, totals, false, true);
    carry = scan_dense(totals, Around(totals.shape(), 1), kind, false);
  }
  Tensor y = empty_on(x, {outer, count, inner}, x.dtype());
  pass(carry, y, chunks > 1, false);
  return y;
}

std::vector<Tensor> scan_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [kind, axis, reverse] = std::any_cast<const ScanAttrs&>(attrs);
  const Shape& shape = inputs[0].shape();
  if (shape.numel() == 0) return one(empty_on(inputs[0], shape, inputs[0].dtype()));
  const Tensor y = scan_dense(contiguous(inputs[0]), Around(shape, axis), kind, reverse);
  return one(reshape(y, shape).detach());
}

// The output, which for 16 bits is computed again from x in f32.
Tensor unrounded(const Record& r, Tensor x) {
  return is_half(r.outputs[0].dtype) ? scan_forward(r.attrs, {&x, 1})[0] : r.output(0);
}

std::vector<Tensor> cumsum_vjp(Record& r, std::span<Tensor> dy) {
  const auto& a = r.attributes<ScanAttrs>();
  return one(cumsum(std::exchange(dy[0], {}), a.axis, !a.reverse));
}

// Gradients of gradients need each term of each element: lines of x become matrices, with as many
// elements as there are pairs of places.
struct ScanLines {
  Tensor x, dy;  // [lines, n]
  Tensor later;  // u8 [n, n]: the place in x (the column) lies behind that of dy (the row)
  ScanAttrs attrs;

  ScanLines(const Record& r, const Tensor& of_x, const Tensor& of_dy)
      : attrs(r.attributes<ScanAttrs>()) {
    x = lines_of(of_x);
    dy = lines_of(of_dy);
    const DeviceScope device(x.device().shared_from_this());
    later = arange(x.size(1)) > unsqueeze(arange(x.size(1)), 1);
  }
  Tensor lines_of(const Tensor& t) const {
    const Tensor last = transpose(attrs.reverse ? flip(t, {attrs.axis}) : t, attrs.axis, -1);
    return reshape(last, {-1, std::max<int64_t>(t.size(attrs.axis), 1)});
  }
  // Returns the sum over the rows of the terms [lines, n, n], in x's shape.
  Tensor total(const Tensor& terms, const Shape& shape) const {
    Shape moved = shape;
    std::swap(moved[attrs.axis], moved[shape.rank() - 1]);
    Tensor y = transpose(reshape(sum(masked_fill(terms, later, 0), {1}), moved), attrs.axis, -1);
    return attrs.reverse ? flip(std::move(y), {attrs.axis}) : y;
  }
  // Returns x [lines, n] as the columns of matrices.
  Tensor columns(const Tensor& t) const {
    return expand(unsqueeze(t, 1), Shape{t.size(0), t.size(1), t.size(1)});
  }
};

// The gradient of x_i is the sum over j >= i of dy_j times the product of the others up to j.
Tensor cumprod_terms(const Record& r, const Tensor& x, const Tensor& dy) {
  const ScanLines lines(r, x, dy);
  const Tensor factors = masked_fill(lines.columns(lines.x), lines.later, 1);
  return lines.total(times_others({2}, factors, unsqueeze(lines.dy, 2)), x.shape());
}

// The gradient of x_i is the sum over j >= i of dy_j exp(x_i - y_j).
Tensor logcumsumexp_terms(const Record& r, const Tensor& x, const Tensor& y, const Tensor& dy) {
  const ScanLines lines(r, x, dy);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Tensor below = lines.lines_of(masked_fill(y, y == -infinity, 0));
  const Tensor apart = masked_fill(lines.columns(lines.x) - unsqueeze(below, 2), lines.later, 0);
  return lines.total(exp(apart) * unsqueeze(lines.dy, 2), x.shape());
}

// Before the first 0 of a line, the gradient is the sum of dy * y from there on, over x. At the 0,
// it is the same sum with 1 in its place. After it every product has that 0, and the gradient is 0.
std::vector<Tensor> cumprod_vjp(Record& r, std::span<Tensor> dys) {
  if (grad_enabled()) return one(cumprod_terms(r, wide(r.input(0)), wide(dys[0])));
  const auto& a = r.attributes<ScanAttrs>();
  const Tensor x = wide(r.input(0)), y = unrounded(r, x), dy = wide(std::exchange(dys[0], {}));
  const auto sum_after = [&](const Tensor& products) {
    return cumsum(dy * products, a.axis, !a.reverse);
  };
  const Tensor is_zero = x == 0;
  const Tensor zeros = cumsum(cast(is_zero, DType::i32), a.axis, a.reverse);
  const Tensor is_first = logical_and(is_zero, zeros == 1);
  const Tensor before = masked_fill(sum_after(y) / x, zeros > 0, 0);
  const Tensor others = cumprod(masked_fill(x, is_first, 1), a.axis, a.reverse);
  return one(where(is_first, sum_after(others), before));
}

// exp(x_i) times the sum over j >= i of dy_j exp(-y_j), in logarithms: separately for the positive
// and the negative elements of dy. Where y_j is -inf, so are all x_i before it, and it depends on
// none of them.
std::vector<Tensor> logcumsumexp_vjp(Record& r, std::span<Tensor> dys) {
  const auto& a = r.attributes<ScanAttrs>();
  if (grad_enabled()) {
    const Tensor wide_x = wide(r.input(0));
    const Tensor wide_y =
        is_half(r.outputs[0].dtype) ? logcumsumexp(wide_x, a.axis, a.reverse) : r.output(0);
    return one(logcumsumexp_terms(r, wide_x, wide_y, wide(dys[0])));
  }
  const Tensor x = wide(r.input(0)), y = unrounded(r, x), dy = wide(std::exchange(dys[0], {}));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Tensor is_nothing = y == -infinity;
  const auto part = [&](const Tensor& positive) {
    const Tensor terms = masked_fill(log(positive) - y, is_nothing, -infinity);
    return exp(logcumsumexp(terms, a.axis, !a.reverse) + x);
  };
  return one(part(relu(dy)) - part(relu(neg(dy))));
}

const Op scan_ops[] = {
    {.name = "cumsum", .forward = scan_forward, .vjp = cumsum_vjp, .records_vjp = true},
    {.name = "cumprod",
     .forward = scan_forward,
     .vjp = cumprod_vjp,
     .saves = saves_always<1, 1>,
     .records_vjp = true},
    {.name = "logcumsumexp",
     .forward = scan_forward,
     .vjp = logcumsumexp_vjp,
     .saves = saves_always<1, 1>,
     .records_vjp = true}};

Tensor scan(ScanKind kind, Tensor x, int axis, bool reverse) {
  const Op& op = scan_ops[kind];
  const AutocastInputs autocast(op.name, {&x});
  axis = normalize_axis(axis, x.rank(), op.name);
  check<DTypeError>(x.dtype() != DType::u8, op.name, "needs f32, f16 or i32, got {}; cast it", x);
  return apply1(op, ScanAttrs{kind, axis, reverse}, std::move(x));
}

}  // namespace

Tensor cumsum(Tensor x, int axis, bool reverse) {
  return scan(scan_sum, std::move(x), axis, reverse);
}
Tensor cumprod(Tensor x, int axis, bool reverse) {
  return scan(scan_prod, std::move(x), axis, reverse);
}
Tensor logcumsumexp(Tensor x, int axis, bool reverse) {
  check_float(x, "logcumsumexp");
  return scan(scan_logsumexp, std::move(x), axis, reverse);
}

}  // namespace rw
