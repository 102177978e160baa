#include <algorithm>
#include <array>
#include <cmath>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

// The elements that one place of an axis reads, and their weights.
struct Taps {
  struct Tap {
    uint32_t at;
    double weight;
  };
  std::array<Tap, 4> tap;
  size_t count;
};

// The kernel of Keys 1981 with a = -0.75, at distance d.
double keys(double d) {
  constexpr double a = -0.75;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Taps taps_of(uint32_t kind, bool align, uint32_t o, uint32_t size, float scale) {
  const bool between = kind == RESAMPLE_LINEAR || kind == RESAMPLE_CUBIC;
  const float half = kind == RESAMPLE_NEAREST || (between && align) ? 0 : 0.5f;
  const int64_t last = int64_t{size} - 1;
  float at = (static_cast<float>(o) + half) * scale;
  if (!between) return {{{{std::min(static_cast<uint32_t>(at), size - 1), 1}}}, 1};
  at -= half;
  if (kind == RESAMPLE_LINEAR) at = std::clamp(at, 0.0f, static_cast<float>(last));
  const auto from = static_cast<int64_t>(std::floor(at));
  const double t = double{at} - static_cast<double>(from);
  Taps taps{{}, 0};
  const auto add = [&](int64_t i, double weight) {
    taps.tap[taps.count++] = {static_cast<uint32_t>(std::clamp<int64_t>(i, 0, last)), weight};
  };
  if (kind == RESAMPLE_CUBIC) {
    for (int k = -1; k <= 2; ++k) add(from + k, keys(std::abs(t - k)));
  } else {
    add(from, 1 - t);
    if (t > 0) add(from + 1, t);
  }
  return taps;
}

// Calls body(element of y, element of x, weight) for all elements that y reads.
template <class Body>
void for_each_read(const Call& call, const Body& body) {
  const auto p = call.params<ResampleParams>();
  const auto taps = [&](uint32_t o, uint32_t size, float scale) {
    return taps_of(call.variant(0), call.variant(1) != 0, o, size, scale);
  };
  for (uint64_t image = 0; image < p.batch; ++image)
    for (uint32_t oh = 0; oh < p.out_h; ++oh)
      for (uint32_t ow = 0; ow < p.out_w; ++ow) {
        const Taps rows = taps(oh, p.in_h, p.scale_h), columns = taps(ow, p.in_w, p.scale_w);
        const uint64_t y = ((image * p.out_h + oh) * p.out_w + ow) * p.channels;
        for (size_t r = 0; r < rows.count; ++r)
          for (size_t s = 0; s < columns.count; ++s) {
            const auto [h, row_weight] = rows.tap[r];
            const auto [w, column_weight] = columns.tap[s];
            const uint64_t x = ((image * p.in_h + h) * p.in_w + w) * p.channels;
            for (uint64_t c = 0; c < p.channels; ++c)
              body(y + c, x + c, row_weight * column_weight);
          }
      }
}

uint64_t pixels(const ResampleParams& p, uint32_t h, uint32_t w) {
  return uint64_t{p.batch} * h * w * p.channels;
}

void store(const std::vector<double>& values, Elements to) {
  for (uint64_t i = 0; i < values.size(); ++i) to.set(i, static_cast<Real>(values[i]));
}

// Returns the element of an axis that place o of the padded axis shows.
uint64_t shown_at(uint32_t mode, const PadAxisParams& p, uint64_t o) {
  const int64_t size = p.size, at = static_cast<int64_t>(o) - int64_t{p.before};
  int64_t shown = std::clamp<int64_t>(at, 0, size - 1);
  if (mode == PAD_CIRCULAR) shown = (at + size) % size;
  if (mode == PAD_REFLECT) shown = at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
  return static_cast<uint64_t>(shown);
}

// Calls body(element of y, element of x that it shows).
template <class Body>
void for_each_shown(const Call& call, const PadAxisParams& p, const Body& body) {
  for (uint64_t line = 0; line < p.outer; ++line)
    for (uint64_t o = 0; o < p.padded; ++o) {
      const uint64_t shown = shown_at(call.variant(0), p, o);
      for (uint64_t c = 0; c < p.inner; ++c)
        body((line * p.padded + o) * p.inner + c, (line * p.size + shown) * p.inner + c);
    }
}

}  // namespace

void resample2d(const Call& call) {
  const auto p = call.params<ResampleParams>();
  const Elements x = call.in(0);
  std::vector<double> y(pixels(p, p.out_h, p.out_w));
  for_each_read(call, [&](uint64_t to, uint64_t from, double w) { y[to] += w * x.get(from); });
  store(y, call.out(1));
}

void resample2d_grad(const Call& call) {
  const auto p = call.params<ResampleParams>();
  const Elements dy = call.in(0);
  std::vector<double> dx(pixels(p, p.in_h, p.in_w));
  for_each_read(call, [&](uint64_t to, uint64_t from, double w) { dx[from] += w * dy.get(to); });
  store(dx, call.out(1));
}

void pad_axis(const Call& call) {
  const auto p = call.params<PadAxisParams>();
  const Elements x = call.in(0);
  Elements y = call.out(1);
  for_each_shown(call, p, [&](uint64_t to, uint64_t from) { y.set(to, x.get(from)); });
}

void pad_axis_grad(const Call& call) {
  const auto p = call.params<PadAxisParams>();
  const Elements dy = call.in(0);
  std::vector<double> dx(uint64_t{p.outer} * p.size * p.inner);
  for_each_shown(call, p, [&](uint64_t to, uint64_t from) { dx[from] += dy.get(to); });
  store(dx, call.out(1));
}

}  // namespace rw::reference
