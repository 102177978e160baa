#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"
#include "backends/reference/loops/elementwise.h"

namespace rw::reference {

using namespace kernels;

namespace {

enum ReduceOp : uint32_t { sum, maximum, minimum, product };

double identity(uint32_t op) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case sum:
      return 0;
    case maximum:
      return -infinity;
    case minimum:
      return infinity;
    default:
      return 1;
  }
}

double combine(uint32_t op, double total, double value) {
  switch (op) {
    case sum:
      return total + value;
    case maximum:
      return value > total || std::isnan(value) ? value : total;
    case minimum:
      return value < total || std::isnan(value) ? value : total;
    default:
      return total * value;
  }
}

double as_double(const Elements& e, uint64_t at) {
  return is_float(e.dtype()) ? double{e.get(at)} : double(e.geti(at));
}

}  // namespace

// Serves reduce_columns and reduce_rows, too. A double holds every i32 and every sum of 2^21 of
// them exactly.
void reduce(const Call& call) {
  const auto p = call.params<ReduceParams>();
  const uint32_t op = call.variant(0);
  check<ValueError>(op <= product, call.kernel(), "op must be 0 to 3, got {}", op);
  const Elements x = call.in(0);
  Elements y = call.out(1);
  uint64_t to = 0;
  for (uint64_t outer = 0; outer < p.outer; ++outer)
    for (uint64_t first = 0; first < p.count; first += p.chunk)
      for (uint64_t inner = 0; inner < p.inner; ++inner, ++to) {
        double total = identity(op);
        for (uint64_t i = first; i < std::min<uint64_t>(p.count, first + p.chunk); ++i)
          total = combine(op, total, as_double(x, (outer * p.count + i) * p.inner + inner));
        if (is_float(y.dtype()))
          y.set(to, static_cast<Real>(total * p.scale));
        else
          y.seti(to, static_cast<int32_t>(static_cast<int64_t>(total)));
      }
}

void argreduce(const Call& call) {
  const auto p = call.params<ReduceParams>();
  const bool is_min = call.variant(0) == 1;
  const Elements x = call.in(0);
  Elements y = call.out(1);
  for (uint64_t outer = 0; outer < p.outer; ++outer) {
    for (uint64_t inner = 0; inner < p.inner; ++inner) {
      const auto value = [&](uint64_t i) {
        return as_double(x, (outer * p.count + i) * p.inner + inner);
      };
      uint64_t best = 0;
      for (uint64_t i = 1; i < p.count; ++i) {
        if (std::isnan(value(best))) break;  // the first NaN wins
        const bool better = is_min ? value(i) < value(best) : value(i) > value(best);
        if (better || std::isnan(value(i))) best = i;
      }
      y.seti(outer * p.inner + inner, static_cast<int32_t>(best));
    }
  }
}

void scan(const Call& call) {
  const auto p = call.params<ScanParams>();
  enum : uint32_t { sums, products, logs };
  const uint32_t op = call.variant(0);
  check<ValueError>(op <= logs, call.kernel(), "op must be 0 to {}, got {}", uint32_t{logs}, op);
  const bool has_carry = call.variant(1) == 1, totals = call.variant(2) == 1;
  const double nothing[] = {0, 1, -std::numeric_limits<double>::infinity()};
  const Elements x = call.in(0), carry = call.in(1);
  Elements y = call.out(2);
  const auto put = [&](uint64_t at, double total) {
    if (is_float(y.dtype()))
      y.set(at, static_cast<Real>(total));
    else
      y.seti(at, static_cast<int32_t>(static_cast<int64_t>(total)));
  };
  for (uint64_t i = 0; i < uint64_t{p.outer} * p.chunks * p.inner; ++i) {
    const uint64_t inner = i % p.inner, part = i / p.inner % p.chunks,
                   outer = i / p.inner / p.chunks;
    double total = has_carry && part > 0 ? as_double(carry, i - p.inner) : nothing[op];
    for (uint64_t k = part * p.chunk; k < std::min<uint64_t>((part + 1) * p.chunk, p.count); ++k) {
      const uint64_t place = p.reverse ? p.count - 1 - k : k;
      const uint64_t at = (outer * p.count + place) * p.inner + inner;
      const double value = as_double(x, at);
      if (op == sums)
        total += value;
      else if (op == logs)
        total = elementwise::log_add_exp(total, value);
      else if (is_float(x.dtype()))
        total *= value;
      else
        total = static_cast<int32_t>(static_cast<int64_t>(total) * static_cast<int64_t>(value));
      if (!totals) put(at, total);
    }
    if (totals) put(i, total);
  }
}

void softmax(const Call& call) {
  const auto p = call.params<SoftmaxParams>();
  const bool log = call.variant(0) == 1;
  const Elements x = call.in(0);
  Elements y = call.out(1);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<double> values = x.to_doubles(row * p.cols, p.cols);
    double top = -std::numeric_limits<double>::infinity(), total = 0;
    for (double v : values) top = combine(maximum, top, v);
    for (double v : values) total += std::exp(v - top);
    for (uint64_t i = 0; i < p.cols; ++i) {
      const double shifted = values[i] - top;
      y.set(row * p.cols + i,
            static_cast<Real>(log ? shifted - std::log(total) : std::exp(shifted) / total));
    }
  }
}

void softmax_grad(const Call& call) {
  const auto p = call.params<SoftmaxParams>();
  const bool log = call.variant(0) == 1;
  const Elements y = call.in(0), dy = call.in(1);
  Elements dx = call.out(2);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<double> values = y.to_doubles(row * p.cols, p.cols);
    const std::vector<double> grads = dy.to_doubles(row * p.cols, p.cols);
    double total = 0;
    for (uint64_t i = 0; i < p.cols; ++i) total += log ? grads[i] : values[i] * grads[i];
    for (uint64_t i = 0; i < p.cols; ++i)
      dx.set(row * p.cols + i, static_cast<Real>(log ? grads[i] - std::exp(values[i]) * total
                                                     : values[i] * (grads[i] - total)));
  }
}

}  // namespace rw::reference
