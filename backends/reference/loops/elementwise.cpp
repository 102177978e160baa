#include "backends/reference/loops/elementwise.h"

#include <bit>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

bool both_int(const Elements& a, const Elements& b) {
  return !is_float(a.dtype()) && !is_float(b.dtype());
}

// The positions of the operands of element i in a binary call, where b is dense, strided, periodic
// or a single value.
struct BinaryPositions {
  uint64_t a, b;
};
BinaryPositions binary_positions(const BinaryParams& p, uint32_t mode, uint64_t i) {
  switch (mode) {
    case 0:
      return {strided(i, p.rank, p.shape, p.a_stride), strided(i, p.rank, p.shape, p.b_stride)};
    case 1:
      return {i, i};
    case 2:
      return {i, i % p.period};
    default:
      return {i, 0};
  }
}

// Computes in 64 bits, so nothing overflows before the result wraps to 32.
int32_t int_binary(uint32_t op, int64_t x, int64_t y) {
  return static_cast<int32_t>(apply_binary<int64_t>(op, x, y));
}

void check_op(const Call& call, uint32_t ops) {
  check<ValueError>(call.variant(0) < ops, call.kernel(), "op must be one of {} rows, got {}", ops,
                    call.variant(0));
}

void check_binary(const Call& call, const BinaryParams& p, uint32_t ops) {
  check_op(call, ops);
  check<ValueError>(call.variant(1) <= 3, call.kernel(), "mode must be 0 to 3, got {}",
                    call.variant(1));
  check<ValueError>(call.variant(1) != 2 || p.period >= REWIND_FLAT, call.kernel(),
                    "period must be at least {}, got {}", REWIND_FLAT, p.period);
}

}  // namespace

void fill(const Call& call) {
  const auto p = call.params<FillParams>();
  Elements y = call.out(0);
  for (uint64_t i = 0; i < p.n; ++i) {
    if (is_float(y.dtype()))
      y.set(i, std::bit_cast<float>(p.bits));
    else
      y.seti(i, static_cast<int32_t>(p.bits));
  }
}

void copy(const Call& call) {
  const auto p = call.params<CopyParams>();
  const Elements x = call.in(0);
  Elements y = call.out(1);
  const bool ints = both_int(x, y);
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t from = strided(i, p.rank, p.shape, p.x_stride);
    const uint64_t to = strided(i, p.rank, p.shape, p.y_stride);
    if (ints)
      y.seti(to, x.geti(from));
    else
      y.set(to, x.get(from));
  }
}

void unary(const Call& call) {
  const auto p = call.params<UnaryParams>();
  const uint32_t op = call.variant(0);
  check_op(call, unary_ops);
  const Elements x = call.in(0);
  Elements y = call.out(1);
  const bool flat = call.variant(1) == 1;
  for (uint64_t i = 0; i < p.n; ++i) {
    const uint64_t from = flat ? i : strided(i, p.rank, p.shape, p.x_stride);
    y.set(i, static_cast<Real>(apply_unary(op, x.get(from), p.a, p.b)));
  }
}

void unary_grad(const Call& call) {
  const auto p = call.params<UnaryGradParams>();
  const uint32_t op = call.variant(0);
  check_op(call, unary_ops);
  const Elements s = call.in(0), dy = call.in(1);
  Elements dx = call.out(2);
  const bool reads = unary_grad_reads_saved(op);
  for (uint64_t i = 0; i < p.n; ++i)
    dx.set(i, static_cast<Real>(apply_unary_grad(op, reads ? s.get(i) : 0, dy.get(i), p.a, p.b)));
}

void binary(const Call& call) {
  const auto p = call.params<BinaryParams>();
  const uint32_t op = call.variant(0), mode = call.variant(1);
  check_binary(call, p, binary_ops);
  const Elements a = call.in(0), b = call.in(1);
  Elements y = call.out(2);
  const bool ints = both_int(a, b);
  for (uint64_t i = 0; i < p.n; ++i) {
    const auto at = binary_positions(p, mode, i);
    if (ints)
      y.seti(i, int_binary(op, a.geti(at.a), b.geti(at.b)));
    else
      y.set(i, static_cast<Real>(apply_binary<double>(op, a.get(at.a), b.get(at.b))));
  }
}

void compare(const Call& call) {
  const auto p = call.params<BinaryParams>();
  const uint32_t op = call.variant(0), mode = call.variant(1);
  check_binary(call, p, compare_ops);
  const Elements a = call.in(0), b = call.in(1);
  Elements y = call.out(2);
  const bool ints = both_int(a, b);
  for (uint64_t i = 0; i < p.n; ++i) {
    const auto at = binary_positions(p, mode, i);
    y.seti(i, ints ? apply_compare(op, a.geti(at.a), b.geti(at.b))
                   : apply_compare(op, a.get(at.a), b.get(at.b)));
  }
}

void where(const Call& call) {
  const auto p = call.params<WhereParams>();
  const Elements c = call.in(0), a = call.in(1), b = call.in(2);
  Elements y = call.out(3);
  for (uint64_t i = 0; i < p.n; ++i) {
    const bool condition = c.geti(strided(i, p.rank, p.shape, p.c_stride)) != 0;
    const Elements& source = condition ? a : b;
    const uint64_t from = strided(i, p.rank, p.shape, condition ? p.a_stride : p.b_stride);
    if (both_int(source, y))
      y.seti(i, source.geti(from));
    else
      y.set(i, source.get(from));
  }
}

void accumulate(const Call& call) {
  const auto p = call.params<AccumulateParams>();
  const Elements x = call.in(0);
  Elements y = call.inout(1);
  for (uint64_t i = 0; i < p.n; ++i) y.set(i, y.get(i) + p.a * x.get(i));
}

}  // namespace rw::reference
