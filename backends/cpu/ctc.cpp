// Connectionist temporal classification, by the formulas of Graves et al. 2006 in logarithms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rewind/backends/cpu/kernels.h"

namespace rw::cpu {

using namespace kernels;

namespace {

constexpr double never = CTC_NEVER;

double log_add(double a, double b, double c) {
  const double top = std::max({a, b, c});
  if (top <= never) return never;
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// One sample of `states`.
class States {
 public:
  States(const CtcParams& p, const Elements& states, uint64_t sample)
      : states_(states), width_(p.width), sample_(sample) {}
  int32_t class_of(uint64_t s) const { return at(0, s); }
  int32_t next(uint64_t s) const { return at(1, s); }
  bool is_first(uint64_t s) const { return at(2, s) & CTC_FIRST; }
  bool skips(uint64_t s) const { return at(2, s) & CTC_SKIPS; }
  uint64_t frames() const { return static_cast<uint64_t>(at(3, 0)); }
  uint64_t count() const { return static_cast<uint64_t>(at(3, 1)); }

 private:
  int32_t at(uint64_t row, uint64_t s) const {
    return states_.geti((sample_ * 4 + row) * width_ + s);
  }
  const Elements& states_;
  uint64_t width_, sample_;
};

}  // namespace

void ctc_states(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements target = call.in(0), frames = call.in(1), labels = call.in(2);
  Elements states = call.out(3);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const auto most = static_cast<int32_t>(p.labels), last = static_cast<int32_t>(p.frames);
    const int32_t count = 2 * std::clamp(labels.geti(n), 0, most) + 1;
    std::vector<int32_t> classes(p.width, -1);
    for (int32_t s = 0; s < count; ++s) {
      const int32_t label = s % 2 == 0 ? static_cast<int32_t>(p.blank)
                                       : target.geti(n * p.labels + static_cast<uint64_t>(s / 2));
      classes[static_cast<size_t>(s)] =
          label < 0 || label >= static_cast<int32_t>(p.classes) ? -2 : label;
    }
    for (uint64_t s = 0; s < p.width; ++s) {
      const auto own = classes.begin() + static_cast<std::ptrdiff_t>(s);
      const auto next = std::find(own + 1, classes.end(), *own);
      const bool first = *own >= 0 && std::find(classes.begin(), own, *own) == own;
      const bool skips = s >= 2 && s % 2 == 1 && own[-2] != *own;
      const uint64_t row = n * 4 * p.width + s;
      states.seti(row, *own);
      states.seti(row + p.width, *own < 0 || next == classes.end()
                                     ? -1
                                     : static_cast<int32_t>(next - classes.begin()));
      states.seti(row + 2 * p.width, (first ? CTC_FIRST : 0) | (skips ? CTC_SKIPS : 0));
      states.seti(row + 3 * p.width, s == 0   ? std::clamp(frames.geti(n), 0, last)
                                     : s == 1 ? count
                                              : 0);
    }
  }
}

void ctc_alpha(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements x = call.in(0), states = call.in(1);
  Elements alpha = call.out(2);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const States state(p, states, n);
    for (uint64_t t = p.begin; t < std::min<uint64_t>(p.end, state.frames()); ++t) {
      const auto before = [&](uint64_t s) -> double {
        return alpha.get(((t - 1) * p.samples + n) * p.width + s);
      };
      for (uint64_t s = 0; s < p.width; ++s) {
        double way = never;
        if (const int32_t own = state.class_of(s); own >= 0) {
          if (t == 0)
            way = s < 2 ? 0 : never;
          else
            way = log_add(before(s), s >= 1 ? before(s - 1) : never,
                          state.skips(s) ? before(s - 2) : never);
          way += x.get((t * p.samples + n) * p.classes + static_cast<uint64_t>(own));
        }
        alpha.set((t * p.samples + n) * p.width + s, static_cast<float>(std::max(way, never)));
      }
    }
  }
}

void ctc_total(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements states = call.in(0), alpha = call.in(1);
  Elements loss = call.out(2);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const States state(p, states, n);
    double total = state.count() == 1 ? 0 : never;
    if (state.frames() > 0) {
      const uint64_t last = ((state.frames() - 1) * p.samples + n) * p.width + state.count() - 1;
      total = log_add(alpha.get(last), state.count() > 1 ? alpha.get(last - 1) : never, never);
    }
    loss.set(n, total <= never / 2 ? std::numeric_limits<float>::infinity()
                                   : static_cast<float>(-total));
  }
}

void ctc_beta(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements x = call.in(0), states = call.in(1), alpha = call.in(2), loss = call.in(3);
  Elements carry = call.out(4), posterior = call.out(5);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const States state(p, states, n);
    const uint64_t frames = state.frames(), count = state.count();
    std::vector<double> behind(p.width, never);
    if (p.end < frames) behind = carry.to_doubles(n * p.width, p.width);
    for (uint64_t t = p.end; t-- > p.begin;) {
      std::vector<double> ways(p.width, never);
      for (uint64_t s = 0; s < p.width; ++s) {
        const uint64_t at = (t * p.samples + n) * p.width + s;
        const int32_t own = state.class_of(s);
        double share = 0;
        if (own >= 0 && t < frames) {
          if (t == frames - 1)
            ways[s] = s + 2 >= count ? 0 : never;
          else
            ways[s] = log_add(behind[s], s + 1 < count ? behind[s + 1] : never,
                              s + 2 < count && state.skips(s + 2) ? behind[s + 2] : never);
          const double own_x = x.get((t * p.samples + n) * p.classes + static_cast<uint64_t>(own));
          ways[s] = std::max(ways[s] + own_x, never);
          const bool possible = alpha.get(at) > never / 2 && ways[s] > never / 2;
          if (!std::isfinite(loss.get(n)))
            share = std::numeric_limits<double>::quiet_NaN();
          else if (possible)
            share = std::exp(alpha.get(at) + ways[s] - own_x + loss.get(n));
        }
        posterior.set(at, static_cast<float>(share));
      }
      behind = std::move(ways);
    }
    for (uint64_t s = 0; s < p.width; ++s)
      carry.set(n * p.width + s, static_cast<float>(behind[s]));
  }
}

void ctc_grad(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements states = call.in(0), posterior = call.in(1), dloss = call.in(2);
  Elements dx = call.out(3);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const States state(p, states, n);
    if (dloss.get(n) == 0) continue;
    for (uint64_t t = 0; t < state.frames(); ++t)
      for (uint64_t s = 0; s < p.width; ++s) {
        if (!state.is_first(s)) continue;
        double sum = 0;
        for (int64_t k = static_cast<int64_t>(s); k >= 0; k = state.next(static_cast<uint64_t>(k)))
          sum += posterior.get((t * p.samples + n) * p.width + static_cast<uint64_t>(k));
        dx.set((t * p.samples + n) * p.classes + static_cast<uint64_t>(state.class_of(s)),
               static_cast<float>(-sum * dloss.get(n)));
      }
  }
}

}  // namespace rw::cpu
