#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

namespace {

struct Pool : PoolParams {
  explicit Pool(const Call& call)
      : PoolParams(call.params<PoolParams>()), adaptive(call.variant(0) != 0) {}
  bool adaptive;
};

// Calls body(output element, its image and channel, oh, ow) for every element of y.
template <class Body>
void for_each_output(const Pool& p, const Body& body) {
  uint64_t i = 0;
  for (uint64_t image = 0; image < p.batch; ++image)
    for (uint64_t oh = 0; oh < p.out_h; ++oh)
      for (uint64_t ow = 0; ow < p.out_w; ++ow)
        for (uint64_t c = 0; c < p.channels; ++c) body(i++, image, c, oh, ow);
}

// The place where a window begins along one axis, and its number of elements.
struct Extent {
  int64_t first, count;
};

Extent extent(uint64_t o, uint64_t kernel, uint64_t stride, uint64_t pad, uint64_t size,
              uint64_t outputs, bool adaptive) {
  if (!adaptive)
    return {static_cast<int64_t>(o * stride) - static_cast<int64_t>(pad),
            static_cast<int64_t>(kernel)};
  const uint64_t first = o * size / outputs, end = ((o + 1) * size + outputs - 1) / outputs;
  return {static_cast<int64_t>(first), static_cast<int64_t>(end - first)};
}

// Calls body(place in the window, h, w) for every position of a window, row by row, including those
// in the padding.
template <class Body>
void for_each_tap(const Pool& p, uint64_t oh, uint64_t ow, const Body& body) {
  const Extent rows = extent(oh, p.kernel_h, p.stride_h, p.pad_h, p.in_h, p.out_h, p.adaptive);
  const Extent columns = extent(ow, p.kernel_w, p.stride_w, p.pad_w, p.in_w, p.out_w, p.adaptive);
  for (int64_t kh = 0; kh < rows.count; ++kh)
    for (int64_t kw = 0; kw < columns.count; ++kw)
      body(static_cast<int32_t>(kh * p.kernel_w + kw), rows.first + kh * p.dilation_h,
           columns.first + kw * p.dilation_w);
}

bool inside(const Pool& p, int64_t h, int64_t w) {
  return h >= 0 && h < p.in_h && w >= 0 && w < p.in_w;
}

uint64_t input_at(const Pool& p, uint64_t image, int64_t h, int64_t w, uint64_t c) {
  return ((image * p.in_h + h) * p.in_w + w) * p.channels + c;
}

uint64_t input_size(const Pool& p) {
  return uint64_t{p.batch} * p.in_h * p.in_w * p.channels;
}

// Returns the divisor of an average. A window may end beyond the padding if the output size was
// rounded up; that part never counts (as in PyTorch).
uint32_t divisor(const Pool& p, uint64_t oh, uint64_t ow) {
  uint32_t taps = 0;
  for_each_tap(p, oh, ow, [&](int32_t, int64_t h, int64_t w) {
    const bool padded = h < int64_t{p.in_h} + p.pad_h && w < int64_t{p.in_w} + p.pad_w;
    taps += p.count_include_pad != 0 ? padded : inside(p, h, w);
  });
  return taps;
}

}  // namespace

void max_pool2d(const Call& call) {
  const Pool p(call);
  const Elements x = call.in(0);
  Elements y = call.out(1), tap = call.out(2);
  for_each_output(p, [&](uint64_t i, uint64_t image, uint64_t c, uint64_t oh, uint64_t ow) {
    Real best = -std::numeric_limits<Real>::infinity();
    int32_t best_tap = -1;
    for_each_tap(p, oh, ow, [&](int32_t t, int64_t h, int64_t w) {
      if (!inside(p, h, w) || std::isnan(best)) return;
      const Real value = x.get(input_at(p, image, h, w, c));
      if (best_tap >= 0 && !(value > best) && !std::isnan(value)) return;
      best = value;
      best_tap = t;
    });
    y.set(i, best);
    tap.seti(i, best_tap);
  });
}

void max_pool2d_grad(const Call& call) {
  const Pool p(call);
  const Elements dy = call.in(0), tap = call.in(1);
  const int32_t none = tap.dtype() == DType::u8 ? 255 : -1, taps = p.kernel_h * p.kernel_w;
  std::vector<double> dx(input_size(p));
  for_each_output(p, [&](uint64_t i, uint64_t image, uint64_t c, uint64_t oh, uint64_t ow) {
    const int32_t chosen = tap.geti(i);
    if (chosen == none) return;  // an empty window
    check<ValueError>(chosen >= 0 && chosen < taps, call.kernel(),
                      "tap must be one of the {} of a {} x {} window, got {}", taps, p.kernel_h,
                      p.kernel_w, chosen);
    for_each_tap(p, oh, ow, [&](int32_t t, int64_t h, int64_t w) {
      if (t == chosen && inside(p, h, w)) dx[input_at(p, image, h, w, c)] += dy.get(i);
    });
  });
  Elements out = call.out(2);
  for (uint64_t i = 0; i < dx.size(); ++i) out.set(i, static_cast<Real>(dx[i]));
}

void avg_pool2d(const Call& call) {
  const Pool p(call);
  const Elements x = call.in(0);
  Elements y = call.out(1);
  for_each_output(p, [&](uint64_t i, uint64_t image, uint64_t c, uint64_t oh, uint64_t ow) {
    double total = 0;
    for_each_tap(p, oh, ow, [&](int32_t, int64_t h, int64_t w) {
      if (inside(p, h, w)) total += x.get(input_at(p, image, h, w, c));
    });
    y.set(i, static_cast<Real>(total / divisor(p, oh, ow)));
  });
}

void avg_pool2d_grad(const Call& call) {
  const Pool p(call);
  const Elements dy = call.in(0);
  std::vector<double> dx(input_size(p));
  for_each_output(p, [&](uint64_t i, uint64_t image, uint64_t c, uint64_t oh, uint64_t ow) {
    const double share = double{dy.get(i)} / divisor(p, oh, ow);
    for_each_tap(p, oh, ow, [&](int32_t, int64_t h, int64_t w) {
      if (inside(p, h, w)) dx[input_at(p, image, h, w, c)] += share;
    });
  });
  Elements out = call.out(1);
  for (uint64_t i = 0; i < dx.size(); ++i) out.set(i, static_cast<Real>(dx[i]));
}

}  // namespace rw::reference
