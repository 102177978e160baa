// Connectionist temporal classification and transducers, by the formulas of Graves et al. 2006 and
// Graves 2012 in logarithms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

constexpr double never = LOG_NEVER;

double log_add(double a, double b, double c) {
  const double top = std::max({a, b, c});
  if (top <= never) return never;
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// Replaces NaN, which is no logarithm.
double known(double x) {
  return std::isnan(x) ? never : x;
}

Real loss_of(double total) {
  return total <= never / 2 ? std::numeric_limits<Real>::infinity() : static_cast<Real>(-total);
}

// Returns an offset that keeps the logarithms of ways near 0: the highest of them, as a whole
// number.
double whole_offset(const std::vector<double>& ways) {
  const double highest = *std::max_element(ways.begin(), ways.end());
  return highest > never / 2 ? std::floor(highest) : 0;
}

void renew(std::vector<double>& ways, double& offset) {
  const double step = whole_offset(ways);
  for (double& way : ways)
    if (way > never / 2) way -= step;
  offset += step;
}

// The rows of one sample in `states`.
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
    const auto row = [&](uint64_t t) { return (t * p.samples + n) * p.width; };
    double offset = p.begin > 0 ? alpha.get(row(p.begin - 1) + p.width - 1) : 0;
    for (uint64_t t = p.begin; t < std::min<uint64_t>(p.end, state.frames()); ++t) {
      const auto before = [&](uint64_t s) -> double { return alpha.get(row(t - 1) + s); };
      std::vector<double> ways(p.width, never);
      for (uint64_t s = 0; s < p.width; ++s) {
        double way = never;
        if (const int32_t own = state.class_of(s); own >= 0) {
          if (t == 0)
            way = s < 2 ? 0 : never;
          else
            way = log_add(before(s), s >= 1 ? before(s - 1) : never,
                          state.skips(s) ? before(s - 2) : never);
          way += known(x.get((t * p.samples + n) * p.classes + static_cast<uint64_t>(own)));
        }
        ways[s] = std::max(way, never);
      }
      if (t % CTC_RENEWED == 0) renew(ways, offset);
      ways[p.width - 1] = offset;
      for (uint64_t s = 0; s < p.width; ++s) alpha.set(row(t) + s, static_cast<Real>(ways[s]));
    }
  }
}

namespace {

// The logarithm of all ways of a sample, from alpha and the offset of its last frame.
struct Total {
  double ways, offset;
};

Total total_of(const CtcParams& p, const States& state, const Elements& alpha, uint64_t n) {
  if (state.frames() == 0) return {state.count() == 1 ? 0 : never, 0};
  const uint64_t row = ((state.frames() - 1) * p.samples + n) * p.width, count = state.count();
  return {
      log_add(alpha.get(row + count - 1), count > 1 ? alpha.get(row + count - 2) : never, never),
      alpha.get(row + p.width - 1)};
}

}  // namespace

void ctc_total(const Call& call) {
  const auto p = call.params<CtcParams>();
  const Elements states = call.in(0), alpha = call.in(1);
  Elements loss = call.out(2);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const States state(p, states, n);
    const Total total = total_of(p, state, alpha, n);
    loss.set(n, loss_of(total.ways > never / 2 ? total.ways + total.offset : never));
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
    double offset = 0;
    if (p.end < frames) {
      behind = carry.to_doubles(n * p.width, p.width);
      offset = std::exchange(behind.back(), never);
    }
    const Total total = total_of(p, state, alpha, n);
    for (uint64_t t = p.end; t-- > p.begin;) {
      std::vector<double> ways(p.width, never);
      const uint64_t row = (t * p.samples + n) * p.width;
      for (uint64_t s = 0; s < p.width; ++s) {
        const uint64_t at = row + s;
        const int32_t own = state.class_of(s);
        double share = 0;
        if (own >= 0 && t < frames) {
          if (t == frames - 1)
            ways[s] = s + 2 >= count ? 0 : never;
          else
            ways[s] = log_add(behind[s], s + 1 < count ? behind[s + 1] : never,
                              s + 2 < count && state.skips(s + 2) ? behind[s + 2] : never);
          const double own_x =
              known(x.get((t * p.samples + n) * p.classes + static_cast<uint64_t>(own)));
          const bool possible = alpha.get(at) > never / 2 && ways[s] > never / 2;
          const double offsets = alpha.get(row + p.width - 1) + offset - total.offset;
          if (!std::isfinite(loss.get(n)))
            share = std::numeric_limits<double>::quiet_NaN();
          else if (possible)
            share = std::exp(std::min(alpha.get(at) - total.ways + ways[s] + offsets, 0.0));
          ways[s] = std::max(ways[s] + own_x, never);
        }
        posterior.set(at, static_cast<Real>(share));
      }
      if (t % CTC_RENEWED == 0) renew(ways, offset);
      behind = std::move(ways);
    }
    behind.back() = offset;
    for (uint64_t s = 0; s < p.width; ++s) carry.set(n * p.width + s, static_cast<Real>(behind[s]));
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
               static_cast<Real>(-sum * dloss.get(n)));
      }
  }
}

namespace {

// The lattice of one sample of a transducer.
struct Lattice {
  Lattice(const RnntParams& p, const Elements& lengths, uint64_t sample)
      : frames(static_cast<uint64_t>(lengths.geti(2 * sample))),
        labels(static_cast<uint64_t>(lengths.geti(2 * sample + 1))),
        first(sample * p.frames * p.width),
        width(p.width) {}
  uint64_t at(uint64_t t, uint64_t u) const { return first + t * width + u; }
  bool has(uint64_t t, uint64_t u) const { return t < frames && u <= labels; }

  uint64_t frames, labels, first, width;
};

}  // namespace

void rnnt_alpha(const Call& call) {
  const auto p = call.params<RnntParams>();
  const Elements blank = call.in(0), label = call.in(1), lengths = call.in(2);
  Elements alpha = call.out(3);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const Lattice l(p, lengths, n);
    for (uint64_t d = p.begin; d < p.end; ++d)
      for (uint64_t u = 0; u <= std::min<uint64_t>(d, p.width - 1); ++u) {
        const uint64_t t = d - u;
        if (!l.has(t, u)) continue;
        const double over =
            t > 0 ? alpha.get(l.at(t - 1, u)) + known(blank.get(l.at(t - 1, u))) : never;
        const double up =
            u > 0 ? alpha.get(l.at(t, u - 1)) + known(label.get(l.at(t, u - 1))) : never;
        const double way = d == 0 ? 0 : log_add(over, up, never);
        alpha.set(l.at(t, u), static_cast<Real>(std::max(way, never)));
      }
  }
}

void rnnt_total(const Call& call) {
  const auto p = call.params<RnntParams>();
  const Elements blank = call.in(0), lengths = call.in(1), alpha = call.in(2);
  Elements loss = call.out(3);
  for (uint64_t n = 0; n < p.samples; ++n) {
    const Lattice l(p, lengths, n);
    double total = never;
    if (l.frames > 0) {
      const uint64_t last = l.at(l.frames - 1, l.labels);
      total = alpha.get(last) + known(blank.get(last));
    }
    loss.set(n, loss_of(total));
  }
}

void rnnt_beta(const Call& call) {
  const auto p = call.params<RnntParams>();
  const Elements blank = call.in(0), label = call.in(1), lengths = call.in(2), alpha = call.in(3),
                 loss = call.in(4), dloss = call.in(5);
  Elements carry = call.out(6), gradient = call.out(7);
  const uint64_t planes = uint64_t{p.samples} * p.frames * p.width;
  for (uint64_t n = 0; n < p.samples; ++n) {
    const Lattice l(p, lengths, n);
    const double scale = dloss.get(n), total = loss.get(n);
    const auto of_step = [&](double from, double own, double to) {
      if (scale == 0) return 0.0;
      if (!std::isfinite(total)) return std::numeric_limits<double>::quiet_NaN();
      const double share = from + own + to;
      return share > never / 2 ? -std::exp(share + total) * scale : 0.0;
    };
    std::vector<double> behind = carry.to_doubles(n * p.width, p.width);
    for (uint64_t d = p.end; d-- > p.begin;) {
      std::vector<double> ways(p.width, never);
      for (uint64_t u = 0; u <= std::min<uint64_t>(d, p.width - 1); ++u) {
        const uint64_t t = d - u, at = l.at(t, u);
        if (t >= p.frames) continue;
        double dblank = 0, dlabel = 0;
        if (l.has(t, u)) {
          const bool ends = t + 1 == l.frames && u == l.labels;
          const double over = ends ? 0 : t + 1 < l.frames ? behind[u] : never;
          const double up = u < l.labels ? behind[u + 1] : never;
          const double own_blank = known(blank.get(at));
          const double own_label = u < l.labels ? known(label.get(at)) : never;
          ways[u] = std::max(log_add(over + own_blank, up + own_label, never), never);
          dblank = of_step(alpha.get(at), own_blank, over);
          dlabel = of_step(alpha.get(at), own_label, up);
        }
        gradient.set(at, static_cast<Real>(dblank));
        gradient.set(planes + at, static_cast<Real>(dlabel));
      }
      behind = std::move(ways);
    }
    for (uint64_t u = 0; u < p.width; ++u) carry.set(n * p.width + u, static_cast<Real>(behind[u]));
  }
}

}  // namespace rw::reference
