#include "backends/cpu/kernels.h"
#include "backends/cpu/parallel.h"

namespace rw::cpu {

using namespace kernels;

namespace {

// Sizes that follow from the parameters. Channels of group g are [g * group_in, (g + 1) *
// group_in).
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

  // The input row (column) that tap k of output row (column) o reads, or -1 in the padding.
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

// w [out_c, taps, group_in] -> [groups, taps, group_in, group_out]: inner loops run over outputs.
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

std::vector<float> to_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

void conv2d(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto x = call.in(0).to_doubles(0, conv.x_size());
  const auto w = outputs_innermost(conv, call.in(1).to_doubles(0, conv.w_size()));
  std::vector<double> y(conv.y_size());

  const auto output_pixel = [&](uint64_t image, uint64_t oh, uint64_t ow) {
    double* out = &y[((image * p.out_h + oh) * p.out_w + ow) * p.out_c];
    for (uint64_t kh = 0; kh < p.kernel_h; ++kh) {
      for (uint64_t kw = 0; kw < p.kernel_w; ++kw) {
        const int64_t h = conv.in_row(oh, kh), col = conv.in_col(ow, kw);
        if (h < 0 || col < 0) continue;
        const double* in = &x[((image * p.in_h + h) * p.in_w + col) * p.in_c];
        for (uint64_t i = 0; i < p.in_c; ++i) {
          const uint64_t group = i / conv.group_in, row = i % conv.group_in;
          const uint64_t tap = group * conv.taps + kh * p.kernel_w + kw;
          const double* weights = &w[(tap * conv.group_in + row) * conv.group_out];
          double* group_out = out + group * conv.group_out;
          for (uint64_t o = 0; o < conv.group_out; ++o) group_out[o] += in[i] * weights[o];
        }
      }
    }
  };
  parallel_for(uint64_t{p.batch} * p.out_h, p.out_w * conv.w_size(), [&](uint64_t row) {
    for (uint64_t ow = 0; ow < p.out_w; ++ow) output_pixel(row / p.out_h, row % p.out_h, ow);
  });
  call.out(2).set_all(to_floats(y));
}

void conv2d_dgrad(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto dy = call.in(0).to_doubles(0, conv.y_size());
  const auto w = call.in(1).to_doubles(0, conv.w_size());
  std::vector<double> dx(conv.x_size());

  const auto output_pixel = [&](uint64_t image, uint64_t oh, uint64_t ow) {
    const double* out = &dy[((image * p.out_h + oh) * p.out_w + ow) * p.out_c];
    for (uint64_t kh = 0; kh < p.kernel_h; ++kh) {
      for (uint64_t kw = 0; kw < p.kernel_w; ++kw) {
        const int64_t h = conv.in_row(oh, kh), col = conv.in_col(ow, kw);
        if (h < 0 || col < 0) continue;
        double* in = &dx[((image * p.in_h + h) * p.in_w + col) * p.in_c];
        for (uint64_t o = 0; o < p.out_c; ++o) {
          const double* weights = &w[(o * conv.taps + kh * p.kernel_w + kw) * conv.group_in];
          double* group_in = in + o / conv.group_out * conv.group_in;
          for (uint64_t i = 0; i < conv.group_in; ++i) group_in[i] += out[o] * weights[i];
        }
      }
    }
  };
  // Windows overlap within an image, never across images: one thread per image.
  parallel_for(p.batch, conv.out_pixels * conv.w_size(), [&](uint64_t image) {
    for (uint64_t oh = 0; oh < p.out_h; ++oh)
      for (uint64_t ow = 0; ow < p.out_w; ++ow) output_pixel(image, oh, ow);
  });
  call.out(2).set_all(to_floats(dx));
}

void conv2d_wgrad(const Call& call) {
  const Conv conv(call);
  const auto& p = conv.p;
  const auto x = call.in(0).to_doubles(0, conv.x_size());
  const auto dy = call.in(1).to_doubles(0, conv.y_size());
  std::vector<double> dw(conv.w_size());

  // One filter tap at a time, over all pixels in order.
  const auto pixel = [&](uint64_t tap, const double* in, const double* out) {
    for (uint64_t o = 0; o < p.out_c; ++o) {
      const double* group_in = in + o / conv.group_out * conv.group_in;
      double* weights = &dw[(o * conv.taps + tap) * conv.group_in];
      for (uint64_t i = 0; i < conv.group_in; ++i) weights[i] += out[o] * group_in[i];
    }
  };
  parallel_for(conv.taps, p.batch * conv.out_pixels * p.out_c * conv.group_in, [&](uint64_t tap) {
    for (uint64_t image = 0; image < p.batch; ++image) {
      for (uint64_t oh = 0; oh < p.out_h; ++oh) {
        for (uint64_t ow = 0; ow < p.out_w; ++ow) {
          const int64_t h = conv.in_row(oh, tap / p.kernel_w);
          const int64_t col = conv.in_col(ow, tap % p.kernel_w);
          if (h < 0 || col < 0) continue;
          pixel(tap, &x[((image * p.in_h + h) * p.in_w + col) * p.in_c],
                &dy[((image * p.out_h + oh) * p.out_w + ow) * p.out_c]);
        }
      }
    }
  });
  call.out(2).set_all(to_floats(dw));
}

}  // namespace rw::cpu
