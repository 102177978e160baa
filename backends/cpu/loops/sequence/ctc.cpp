// Connectionist temporal classification (Graves et al. 2006) in logarithms, with the states of a
// frame side by side.
#include "backends/cpu/loops/sequence/sequence_loss.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The rows of one sample in `states`.
struct States {
  const int32_t *classes, *next, *flags, *sizes;

  States(const CtcParams& p, const Operand& states, int64_t sample)
      : classes(states.as<int32_t>(sample * 4 * p.width)),
        next(classes + p.width),
        flags(next + p.width),
        sizes(flags + p.width) {}
  int64_t frames() const { return sizes[0]; }
  int64_t count() const { return sizes[1]; }
};

int64_t row_of(const CtcParams& p, int64_t frame, int64_t sample) {
  return (frame * p.samples + sample) * p.width;
}

// Calls body(sample) for all samples in parallel, with frames [begin, end) of each.
template <class Body>
void each_sample(const CtcParams& p, const Body& body) {
  const int64_t frames = int64_t{p.end} - int64_t{p.begin};
  parallel_for(p.samples, int64_t{p.samples} * (frames > 0 ? frames : 1) * p.width * 64, body);
}

// Returns the logarithm of the probability of each state's class in a frame.
void own_logs(const CtcParams& p, const States& state, const float* x, float* to) {
  for (int64_t s = 0; s < p.width; ++s)
    to[s] = state.classes[s] >= 0 ? known(x[state.classes[s]]) : never;
}

// Keeps the logarithms of ways near 0: moves the highest of them, as a whole number, from all into
// the offset.
void renew(float* ways, int64_t width, double& offset) {
  const float highest = largest(ways, width), half = never / 2;
  const float step = highest > half ? floor(highest) : 0;
  each(width, [=](int64_t s) { ways[s] = ways[s] > half ? ways[s] - step : ways[s]; });
  offset += double{step};
}

// The logarithm of all ways of a sample, from alpha and the offset of its last frame.
struct Total {
  float ways;
  double offset;
};
Total total_of(const CtcParams& p, const States& state, const float* alpha, int64_t sample) {
  const int64_t count = state.count();
  if (state.frames() == 0) return {count == 1 ? 0 : never, 0};
  const float* const row = alpha + row_of(p, state.frames() - 1, sample);
  return {log_add(row[count - 1], count > 1 ? row[count - 2] : never, never), row[p.width - 1]};
}

int32_t clamp(int32_t x, int64_t most) {
  return x < 0 ? 0 : static_cast<int32_t>(least(x, most));
}

}  // namespace

bool ctc_states(const LoopCall& call) {
  const auto& p = params<CtcParams>(call);
  const int32_t *target = operand(call, 0).as<int32_t>(), *frames = operand(call, 1).as<int32_t>(),
                *labels = operand(call, 2).as<int32_t>();
  const int64_t width = p.width;
  parallel_for(p.samples, p.samples * width * width, [&](int64_t n) {
    int32_t* const classes = operand(call, 3).as<int32_t>(n * 4 * width);
    int32_t *const next = classes + width, *const flags = next + width, *sizes = flags + width;
    const int32_t count = 2 * clamp(labels[n], p.labels) + 1;
    for (int64_t s = 0; s < width; ++s) {
      const int64_t label = s % 2 == 0  ? int64_t{p.blank}
                            : s < count ? target[n * p.labels + s / 2]
                                        : 0;
      classes[s] = s >= count                        ? -1
                   : label < 0 || label >= p.classes ? -2
                                                     : static_cast<int32_t>(label);
      sizes[s] = s == 0 ? clamp(frames[n], p.frames) : s == 1 ? count : 0;
    }
    for (int64_t s = 0; s < width; ++s) {
      const int32_t own = classes[s];
      int64_t before = 0, behind = s + 1;
      while (before < s && classes[before] != own) ++before;
      while (behind < width && classes[behind] != own) ++behind;
      const bool skips = s >= 2 && s % 2 == 1 && classes[s - 2] != own;
      next[s] = own < 0 || behind == width ? -1 : static_cast<int32_t>(behind);
      flags[s] = (own >= 0 && before == s ? CTC_FIRST : 0) | (skips ? CTC_SKIPS : 0);
    }
  });
  return true;
}

bool ctc_alpha(const LoopCall& call) {
  const auto& p = params<CtcParams>(call);
  const float* const x = operand(call, 0).as<float>();
  const Operand states = operand(call, 1);
  float* const alpha = operand(call, 2).as<float>();
  if (p.width > MOST_WAYS) return false;
  const int64_t width = p.width;
  each_sample(p, [&](int64_t n) {
    const States state(p, states, n);
    Ways before, own;
    float *const b = before.at(), *const o = own.at();
    double offset = 0;
    if (p.begin > 0) {
      const float* const row = alpha + row_of(p, int64_t{p.begin} - 1, n);
      for (int64_t s = 0; s < width - 1; ++s) b[s] = row[s];
      offset = double{row[width - 1]};
    }
    const int32_t *const classes = state.classes, *const flags = state.flags;
    for (int64_t t = p.begin; t < least(p.end, state.frames()); ++t) {
      float* const to = alpha + row_of(p, t, n);
      own_logs(p, state, x + (t * p.samples + n) * p.classes, o);
      if (t == 0)
        each(width, [=](int64_t s) { to[s] = s < 2 && classes[s] >= 0 ? o[s] : never; });
      else
        each(width, [=](int64_t s) {
          const float way = log_add(b[s], b[s - 1], (flags[s] & CTC_SKIPS) != 0 ? b[s - 2] : never);
          to[s] = classes[s] >= 0 ? way + o[s] : never;
        });
      each(width, [=](int64_t s) { to[s] = at_least_never(to[s]); });
      if (t % CTC_RENEWED == 0) renew(to, width, offset);
      for (int64_t s = 0; s < width - 1; ++s) b[s] = to[s];
      to[width - 1] = static_cast<float>(offset);
    }
  });
  return true;
}

bool ctc_total(const LoopCall& call) {
  const auto& p = params<CtcParams>(call);
  const Operand states = operand(call, 0);
  const float* const alpha = operand(call, 1).as<float>();
  float* const loss = operand(call, 2).as<float>();
  for (int64_t n = 0; n < p.samples; ++n) {
    const Total total = total_of(p, States(p, states, n), alpha, n);
    const bool is_possible = total.ways > never / 2;
    loss[n] = loss_of(is_possible ? double{total.ways} + total.offset : double{never});
  }
  return true;
}

bool ctc_beta(const LoopCall& call) {
  const auto& p = params<CtcParams>(call);
  const float *x = operand(call, 0).as<float>(), *alpha = operand(call, 2).as<float>(),
              *loss = operand(call, 3).as<float>();
  const Operand states = operand(call, 1);
  float *carry = operand(call, 4).as<float>(), *posterior = operand(call, 5).as<float>();
  if (p.width > MOST_WAYS) return false;
  const int64_t width = p.width;
  each_sample(p, [&](int64_t n) {
    const States state(p, states, n);
    const int64_t frames = state.frames(), count = state.count();
    const Total total = total_of(p, state, alpha, n);
    const bool is_known = is_finite(loss[n]);
    Ways behind, own, made;
    float *const b = behind.at(), *const o = own.at(), *const ways = made.at();
    double offset = 0;
    if (p.end < frames) {
      for (int64_t s = 0; s < width - 1; ++s) b[s] = carry[n * width + s];
      offset = double{carry[(n + 1) * width - 1]};
    }
    const int32_t *const classes = state.classes, *const flags = state.flags;
    for (int64_t t = int64_t{p.end} - 1; t >= p.begin; --t) {
      const float* const a = alpha + row_of(p, t, n);
      float* const share = posterior + row_of(p, t, n);
      if (t >= frames) {
        for (int64_t s = 0; s < width; ++s) share[s] = 0, b[s] = never;
        continue;
      }
      own_logs(p, state, x + (t * p.samples + n) * p.classes, o);
      if (t == frames - 1)
        each(width, [=](int64_t s) { ways[s] = s + 2 >= count && classes[s] >= 0 ? 0 : never; });
      else
        each(width, [=](int64_t s) {
          const bool skips = s + 2 < count && (flags[s + 2] & CTC_SKIPS) != 0;
          const float way = log_add(b[s], b[s + 1], skips ? b[s + 2] : never);
          ways[s] = classes[s] >= 0 ? way : never;
        });
      const double rest = double{a[width - 1]} + offset - total.offset - double{total.ways};
      const float half = never / 2, impossible = is_known ? 0 : nan;
      each(width, [=](int64_t s) {
        const float power = static_cast<float>(double{a[s]} + double{ways[s]} + rest);
        const float part = exp(power < 0 ? power : 0.0f);
        const float known_part = is_known && a[s] > half && ways[s] > half ? part : impossible;
        share[s] = classes[s] >= 0 ? known_part : 0.0f;
        b[s] = classes[s] >= 0 ? at_least_never(ways[s] + o[s]) : never;
      });
      if (t % CTC_RENEWED == 0) renew(b, width, offset);
    }
    for (int64_t s = 0; s < width - 1; ++s) carry[n * width + s] = b[s];
    carry[(n + 1) * width - 1] = static_cast<float>(offset);
  });
  return true;
}

bool ctc_grad(const LoopCall& call) {
  const auto& p = params<CtcParams>(call);
  const Operand states = operand(call, 0);
  const float *posterior = operand(call, 1).as<float>(), *dloss = operand(call, 2).as<float>();
  float* const dx = operand(call, 3).as<float>();
  const int64_t width = p.width, samples = p.samples;
  parallel_for(samples * p.frames, samples * p.frames * width * 8, [&](int64_t i) {
    const int64_t t = i / samples, n = i % samples;
    const States state(p, states, n);
    if (dloss[n] == 0 || t >= state.frames()) return;
    const float* const share = posterior + row_of(p, t, n);
    for (int64_t s = 0; s < width; ++s) {
      if ((state.flags[s] & CTC_FIRST) == 0) continue;
      double sum = 0;
      for (int64_t k = s; k >= 0; k = state.next[k]) sum += double{share[k]};
      dx[i * p.classes + state.classes[s]] = static_cast<float>(-sum * double{dloss[n]});
    }
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
