// Running sums, products and logarithms of sums of exp along an axis.
#include "backends/cpu/loops/functions.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

enum ScanOp : uint32_t { sums, products, logs };

double log_add_exp(double x, double y) {
  if (x == y) return x + 0.69314718055994531;
  const double high = x < y || y != y ? y : x;
  return high + __builtin_log1p(__builtin_exp(-__builtin_fabs(x - y)));
}

double next(uint32_t op, double total, double value, bool is_int) {
  if (op == sums) return total + value;
  if (op == logs) return log_add_exp(total, value);
  if (!is_int) return total * value;
  return static_cast<int32_t>(static_cast<int64_t>(total) * static_cast<int64_t>(value));
}

// Reads single elements, since a line of an inner axis has no blocks.
double scan_element(const Operand& x, int64_t at) {
  if (x.dtype == DType::i32) return *x.as<int32_t>(at);
  float buffer;
  return *read(x, at, 1, &buffer);
}
void set_element(const Operand& y, int64_t at, double value) {
  const auto real = static_cast<float>(value);
  if (y.dtype == DType::i32)
    *y.as<int32_t>(at) = static_cast<int32_t>(static_cast<int64_t>(value));
  else
    write(y, at, 1, &real);
}

}  // namespace

bool scan(const LoopCall& call) {
  const auto& p = params<ScanParams>(call);
  const uint32_t op = call.constant[0];
  if (op > logs) return false;
  const bool has_carry = call.constant[1] == 1, totals = call.constant[2] == 1;
  const double nothing[] = {0, 1, -__builtin_inf()};
  const Operand x = operand(call, 0), carry = operand(call, 1), y = operand(call, 2);
  const bool is_int = x.dtype == DType::i32;
  const int64_t outer = p.outer, count = p.count, inner = p.inner, chunks = p.chunks;
  parallel_for(outer * chunks * inner, 2 * outer * count * inner * x.width, [&](int64_t i) {
    const int64_t part = i / inner % chunks, line = i / inner / chunks * count, last = count - 1;
    double total = has_carry && part > 0 ? scan_element(carry, i - inner) : nothing[op];
    for (int64_t k = part * p.chunk; k < least((part + 1) * p.chunk, count); ++k) {
      const int64_t at = (line + (p.reverse != 0 ? last - k : k)) * inner + i % inner;
      total = next(op, total, scan_element(x, at), is_int);
      if (!totals) set_element(y, at, total);
    }
    if (totals) set_element(y, i, total);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
