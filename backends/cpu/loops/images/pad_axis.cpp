// Padding of an axis with borders that show elements of it.
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Returns the element of an axis that place o of the padded axis shows.
int64_t shown_at(uint32_t mode, const PadAxisParams& p, int64_t o) {
  const int64_t size = p.size, at = o - int64_t{p.before};
  if (mode == PAD_CIRCULAR) return (at + size) % size;
  if (mode == PAD_REFLECT) return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
  return at < 0 ? 0 : least(at, size - 1);
}

// Calls body(o) for the places that show an element, in their order.
template <class Body>
void each_place(uint32_t mode, const PadAxisParams& p, int64_t at, const Body& body) {
  const int64_t own = at + p.before, size = p.size, padded = p.padded, last = size - 1;
  if (mode == PAD_REPLICATE) {
    for (int64_t o = at == 0 ? 0 : own; o < (at == last ? padded : own + 1); ++o) body(o);
    return;
  }
  const bool is_circular = mode == PAD_CIRCULAR;
  const int64_t low = is_circular ? own - size : at > 0 ? p.before - at : -1;
  const int64_t high = is_circular ? own + size : at < last ? p.before + 2 * last - at : padded;
  if (low >= 0) body(low);
  body(own);
  if (high < padded) body(high);
}

}  // namespace

bool pad_axis(const LoopCall& call) {
  const auto& p = params<PadAxisParams>(call);
  const Operand x = operand(call, 0), y = operand(call, 1);
  const int64_t padded = p.padded, inner = p.inner;
  parallel_for(p.outer * padded, p.outer * padded * inner * 2 * x.width, [&](int64_t i) {
    const int64_t line = i / padded, shown = shown_at(call.constant[0], p, i % padded);
    __builtin_memcpy(y.from(i * inner).data, x.from((line * p.size + shown) * inner).data,
                     static_cast<size_t>(inner * x.width));
  });
  return true;
}

bool pad_axis_grad(const LoopCall& call) {
  const auto& p = params<PadAxisParams>(call);
  const Operand dy = operand(call, 0), dx = operand(call, 1);
  const int64_t size = p.size, inner = p.inner;
  parallel_for(p.outer * size, p.outer * size * inner * 2 * dx.width, [&](int64_t i) {
    blocks_of(inner, [&](int64_t c, int64_t n) {
      Block values, result;
      float* const sum = result.at;
      each(n, [=](int64_t k) { sum[k] = 0; });
      each_place(call.constant[0], p, i % size, [&](int64_t o) {
        const float* const g = read(dy, (i / size * p.padded + o) * inner + c, n, values.at);
        each(n, [=](int64_t k) { sum[k] += g[k]; });
      });
      write(dx, i * inner + c, n, sum);
    });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
