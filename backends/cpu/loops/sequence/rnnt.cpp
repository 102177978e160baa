// Transducers (Graves 2012) in logarithms, with the places of a diagonal side by side.
#include "backends/cpu/loops/sequence/sequence_loss.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The lattice of one sample of a transducer.
struct Lattice {
  int64_t frames, labels, first, width;

  Lattice(const RnntParams& p, const int32_t* lengths, int64_t sample)
      : frames(lengths[2 * sample]),
        labels(lengths[2 * sample + 1]),
        first(sample * p.frames * p.width),
        width(p.width) {}
  int64_t at(int64_t t, int64_t u) const { return first + t * width + u; }
  // The labels of a diagonal's places are [from, to).
  int64_t from(int64_t diagonal) const { return diagonal < frames ? 0 : diagonal - frames + 1; }
  int64_t to(int64_t diagonal) const { return least(least(diagonal, width - 1), labels) + 1; }
};

template <class Body>
void each_sample(const RnntParams& p, const Body& body) {
  parallel_for(p.samples, int64_t{p.samples} * p.frames * p.width * 64, body);
}

}  // namespace

bool rnnt_alpha(const LoopCall& call) {
  const auto& p = params<RnntParams>(call);
  const float *blank = operand(call, 0).as<float>(), *label = operand(call, 1).as<float>();
  const int32_t* const lengths = operand(call, 2).as<int32_t>();
  float* const alpha = operand(call, 3).as<float>();
  if (p.width > MOST_WAYS) return false;
  each_sample(p, [&](int64_t n) {
    const Lattice l(p, lengths, n);
    Ways over, up;
    float *const o = over.at(), *const v = up.at();
    for (int64_t d = p.begin; d < p.end; ++d) {
      const int64_t from = l.from(d), to = l.to(d);
      for (int64_t u = from; u < to; ++u) {
        const int64_t t = d - u, left = l.at(t - 1, u), below = l.at(t, u - 1);
        o[u] = t > 0 ? alpha[left] + known(blank[left]) : never;
        v[u] = u > 0 ? alpha[below] + known(label[below]) : never;
      }
      each(to - from, [=](int64_t i) {
        const float way = log_add(o[from + i], v[from + i], never);
        o[from + i] = at_least_never(way);
      });
      for (int64_t u = from; u < to; ++u) alpha[l.at(d - u, u)] = d == 0 ? 0 : o[u];
    }
  });
  return true;
}

bool rnnt_total(const LoopCall& call) {
  const auto& p = params<RnntParams>(call);
  const float *blank = operand(call, 0).as<float>(), *alpha = operand(call, 2).as<float>();
  const int32_t* const lengths = operand(call, 1).as<int32_t>();
  float* const loss = operand(call, 3).as<float>();
  for (int64_t n = 0; n < p.samples; ++n) {
    const Lattice l(p, lengths, n);
    const int64_t last = l.at(l.frames - 1, l.labels);
    loss[n] =
        loss_of(l.frames > 0 ? double{alpha[last]} + double{known(blank[last])} : double{never});
  }
  return true;
}

bool rnnt_beta(const LoopCall& call) {
  const auto& p = params<RnntParams>(call);
  const float *blank = operand(call, 0).as<float>(), *label = operand(call, 1).as<float>(),
              *alpha = operand(call, 3).as<float>(), *loss = operand(call, 4).as<float>(),
              *dloss = operand(call, 5).as<float>();
  const int32_t* const lengths = operand(call, 2).as<int32_t>();
  float *const carry = operand(call, 6).as<float>(), *gradient = operand(call, 7).as<float>();
  if (p.width > MOST_WAYS) return false;
  const int64_t width = p.width, planes = int64_t{p.samples} * p.frames * width;
  each_sample(p, [&](int64_t n) {
    const Lattice l(p, lengths, n);
    const float scale = dloss[n], whole = loss[n];
    Ways behind, made, own_blanks, own_labels, befores;
    float *b = behind.at(), *ways = made.at();
    float *const ob = own_blanks.at(), *const ol = own_labels.at(), *const a = befores.at();
    for (int64_t u = 0; u < width; ++u) b[u] = carry[n * width + u];
    // The gradient of a step: the probability of all ways through it, times -dloss.
    const auto of_step = [scale, whole](float from, float own, float to) {
      const float share = from + own + to, part = -exp(share + whole) * scale;
      const float known_part = share > never / 2 ? part : 0.0f;
      return scale == 0.0f ? 0.0f : whole - whole == 0.0f ? known_part : nan;
    };
    for (int64_t d = int64_t{p.end} - 1; d >= p.begin; --d) {
      const int64_t from = l.from(d), to = l.to(d), frames = l.frames, labels = l.labels;
      for (int64_t u = from; u < to; ++u) {
        const int64_t at = l.at(d - u, u);
        ob[u] = known(blank[at]);
        ol[u] = u < labels ? known(label[at]) : never;
        a[u] = alpha[at];
      }
      for (int64_t u = 0; u < width; ++u) ways[u] = never;
      // The gradients of blank and label replace the values from which they are computed.
      each(to - from, [=](int64_t i) {
        const int64_t u = from + i, t = d - u;
        const bool is_last = t + 1 == frames;
        const float over = !is_last ? b[u] : u == labels ? 0.0f : never;
        const float up = u < labels ? b[u + 1] : never;
        const float own_blank = ob[u], own_label = ol[u], before = a[u];
        ways[u] = at_least_never(log_add(over + own_blank, up + own_label, never));
        ob[u] = of_step(before, own_blank, over);
        ol[u] = of_step(before, own_label, up);
      });
      for (int64_t u = 0; u <= least(d, width - 1); ++u) {
        if (d - u >= p.frames) continue;
        const bool is_place = u >= from && u < to;
        gradient[l.at(d - u, u)] = is_place ? ob[u] : 0;
        gradient[planes + l.at(d - u, u)] = is_place ? ol[u] : 0;
      }
      float* const swapped = b;
      b = ways;
      ways = swapped;
    }
    for (int64_t u = 0; u < width; ++u) carry[n * width + u] = b[u];
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
