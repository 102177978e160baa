#include <cmath>

#include "backends/reference/chunks.h"
#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Returns the number of updates since the average began if this update changes the average, else 0.
template <class P>
uint32_t ticking(const P& p, const Elements& start, const Elements& state) {
  if (state.get(STATE_FOUND_INF) != 0) return 0;
  const auto since = static_cast<uint32_t>(count_of(state, STATE_UPDATES) - start.get(0));
  return since % p.every == 0 ? since : 0;
}

}  // namespace

void ema(const Call& call) {
  const auto p = call.params<AverageParams>();
  const Elements param = call.in(1);
  const uint32_t since = ticking(p, call.in(2), call.in(3));
  if (since == 0) return;
  Elements average = call.inout(0);
  const double ticks = since / p.every;
  double rate = p.kind == AVERAGE_EQUAL ? 1 / ticks : 1 - double{p.decay};
  if (p.kind == AVERAGE_CORRECTED) rate /= 1 - std::pow(double{p.decay}, ticks);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double before = average.get(i);
    average.set(i, static_cast<Real>(before + rate * (param.get(i) - before)));
  }
}

void lookahead(const Call& call) {
  const auto p = call.params<AverageParams>();
  if (ticking(p, call.in(2), call.in(3)) == 0) return;
  Elements slow = call.inout(0), param = call.inout(1);
  for (uint64_t i = 0; i < p.n; ++i) {
    const double before = slow.get(i);
    const auto after = static_cast<Real>(before + p.alpha * (param.get(i) - before));
    slow.set(i, after);
    param.set(i, after);
  }
}

}  // namespace rw::reference
