#include "backends/reference/kernels.h"
#include "backends/reference/parallel.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Sizes that follow from the parameters. The input channels of group g begin at g * group_in.
struct Conv {
  explicit Conv(const Call& call) : p(call.params<Conv2dParams>()) {
    check<ShapeError>(p.groups > 0 && p.in_c % p.groups == 0 && p.out_c % p.groups == 0,
                      call.kernel(), "groups must divide the channels, got {} groups of {} and {}",
                      p.groups, p.in_c, p.out_c);
    group_in = p.in_c / p.groups;
    group_out = p.out_c / p.groups;
    taps = uint64_t{p.kernel_h} * p.kernel_w;
    in_pixels = uint64_t{p.in_h} * p.in_w;
    out_pixels = uint64_t{p.out_h} * p.out_w;
  }

  uint64_t x_size() const { return p.batch * in_pixels * p.in_c; }
  uint64_t w_size() const { return p.out_c * taps * group_in; }
  uint64_t y_size() const { return p.batch * out_pixels * p.out_c; }

  uint64_t x_at(uint64_t image, uint64_t h, uint64_t w) const {
    return (image * in_pixels + h * p.in_w + w) * p.in_c;
  }
  uint64_t y_at(uint64_t image, uint64_t h, uint64_t w) const {
    return (image * out_pixels + h * p.out_w + w) * p.out_c;
  }

  // Returns the input row (column) that tap k of output row (column) o reads, or -1 in the padding.
  int64_t in_row(uint64_t o, uint64_t k) const {
    const int64_t h = static_cast<int64_t>(o * p.stride_h + k * p.dilation_h) - p.pad_h;
    return h < p.in_h ? h : -1;
  }
  int64_t in_col(uint64_t o, uint64_t k) const {
    const int64_t w = static_cast<int64_t>(o * p.stride_w + k * p.dilation_w) - p.pad_w;
    return w < p.in_w ? w : -1;
  }

  Conv2dParams p;
  uint64_t group_in, group_out, taps, in_pixels, out_pixels;
};

// Turns w [out_c, taps, group_in] into [groups, taps, group_in, group_out], so that inner loops run
// over outputs.
std::vector<double> outputs_innermost(const Conv& conv, const std::vector<double>& w) {
  std::vector<double> t(w.size());
  for (uint64_t o = 0; o < conv.p.out_c; ++o)
    for (uint64_t tap = 0; tap < conv.taps; ++tap)
      for (uint64_t i = 0; i < conv.group_in; ++i) {
        const uint64_t group = o / conv.group_out, column = o % conv.group_out;
        t[((group * conv.taps + tap) * conv.group_in + i) * conv.group_out + column] =
            w[(o * conv.taps + tap) * conv.group_in + i];
      }
  return t;
}

// Calls body(tap, position in x, position in y) for every tap of one row of output pixels that
// reads the image; both positions are of channel 0.
template <class Body>
void for_each_tap(const Conv& conv, uint64_t image, uint64_t oh, const Body& body) {
  const auto& p = conv.p;
  for (uint64_t ow = 0; ow < p.out_w; ++ow) {
    for (uint64_t tap = 0; tap < conv.taps; ++tap) {
      const int64_t h = conv.in_row(oh, tap / p.kernel_w), w = conv.in_col(ow, tap % p.kernel_w);
      if (h < 0 || w < 0) continue;
      body(tap, conv.x_at(image, h, w), conv.y_at(image, oh, ow));
    }
  }
}

// Computes y[cols] += x[rows] @ w, whose rows begin `stride` apart.
void multiply_add(const double* x, uint64_t rows, const double* w, uint64_t stride, uint64_t cols,
                  double* y) {
  for (uint64_t r = 0; r < rows; ++r) {
    const double scale = x[r];
    for (uint64_t c = 0; c < cols; ++c) y[c] += scale * w[r * stride + c];
  }
}

std::vector<Real> to_reals(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void conv2d(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto x = call.in(0).to_doubles(0, conv.x_size());
  const auto w = outputs_innermost(conv, call.in(1).to_doubles(0, conv.w_size()));
  std::vector<double> y(conv.y_size());
  parallel_for(uint64_t{p.batch} * p.out_h, p.out_w * conv.w_size(), [&](uint64_t row) {
    for_each_tap(conv, row / p.out_h, row % p.out_h, [&](uint64_t tap, uint64_t in, uint64_t out) {
      for (uint64_t g = 0; g < p.groups; ++g)
        multiply_add(&x[in + g * conv.group_in], conv.group_in,
                     &w[(g * conv.taps + tap) * conv.group_in * conv.group_out], conv.group_out,
                     conv.group_out, &y[out + g * conv.group_out]);
    });
  });
  call.out(2).set_all(to_reals(y));
}

void conv2d_dgrad(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto dy = call.in(0).to_doubles(0, conv.y_size());
  const auto w = call.in(1).to_doubles(0, conv.w_size());
  std::vector<double> dx(conv.x_size());
  const auto output_row = [&](uint64_t image, uint64_t oh) {
    for_each_tap(conv, image, oh, [&](uint64_t tap, uint64_t in, uint64_t out) {
      for (uint64_t g = 0; g < p.groups; ++g)
        multiply_add(&dy[out + g * conv.group_out], conv.group_out,
                     &w[(g * conv.group_out * conv.taps + tap) * conv.group_in],
                     conv.taps * conv.group_in, conv.group_in, &dx[in + g * conv.group_in]);
    });
  };
  // Windows overlap within an image but never across images, so each image has one thread.
  parallel_for(p.batch, conv.out_pixels * conv.w_size(), [&](uint64_t image) {
    for (uint64_t oh = 0; oh < p.out_h; ++oh) output_row(image, oh);
  });
  call.out(2).set_all(to_reals(dx));
}

void conv2d_wgrad(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto x = call.in(0).to_doubles(0, conv.x_size());
  const auto dy = call.in(1).to_doubles(0, conv.y_size());
  std::vector<double> dw(conv.w_size());

  // Takes one filter tap at a time, over all pixels in order.
  const auto pixel = [&](uint64_t tap, const double* in, const double* out) {
    for (uint64_t g = 0; g < p.groups; ++g)
      for (uint64_t o = g * conv.group_out; o < (g + 1) * conv.group_out; ++o) {
        double* weights = &dw[(o * conv.taps + tap) * conv.group_in];
        for (uint64_t i = 0; i < conv.group_in; ++i)
          weights[i] += out[o] * in[g * conv.group_in + i];
      }
  };
  parallel_for(conv.taps, p.batch * conv.out_pixels * p.out_c * conv.group_in, [&](uint64_t tap) {
    for (uint64_t row = 0; row < uint64_t{p.batch} * p.out_h; ++row) {
      const uint64_t image = row / p.out_h, oh = row % p.out_h;
      const int64_t h = conv.in_row(oh, tap / p.kernel_w);
      for (uint64_t ow = 0; ow < p.out_w; ++ow) {
        const int64_t w = conv.in_col(ow, tap % p.kernel_w);
        if (h >= 0 && w >= 0) pixel(tap, &x[conv.x_at(image, h, w)], &dy[conv.y_at(image, oh, ow)]);
      }
    }
  });
  call.out(2).set_all(to_reals(dw));
}

}  // namespace rw::reference
