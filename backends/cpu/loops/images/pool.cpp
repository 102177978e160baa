// Pooling of images, with the channels of a pixel side by side.
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Windows along one axis.
struct PoolAxis {
  int64_t size, outputs, kernel, stride, pad, dilation;
  bool adaptive;

  int64_t first(int64_t o) const { return adaptive ? o * size / outputs : o * stride - pad; }
  int64_t places(int64_t o) const {
    return adaptive ? divide_up((o + 1) * size, outputs) - first(o) : kernel;
  }
  // Calls body(place in the window, element) for the elements of a window.
  template <class Body>
  void each_element(int64_t o, const Body& body) const {
    for (int64_t k = 0; k < places(o); ++k) {
      const int64_t at = first(o) + k * dilation;
      if (at >= 0 && at < size) body(k, at);
    }
  }
  // Calls body(o, place in the window) for the windows that have an element.
  template <class Body>
  void each_window(int64_t at, const Body& body) const {
    int64_t o, last;
    if (adaptive) {
      o = at * outputs / size;
      last = ((at + 1) * outputs - 1) / size;
    } else {
      // The element at which the first such window may begin.
      const int64_t below = at + pad - (kernel - 1) * dilation;
      o = below > 0 ? divide_up(below, stride) : 0;
      last = (at + pad) / stride;
    }
    for (; o <= least(last, outputs - 1); ++o)
      if ((at - first(o)) % dilation == 0) body(o, (at - first(o)) / dilation);
  }
  // Returns how many elements of a window count. A window may end beyond the padding if the output
  // size was rounded up; that part never counts (as in PyTorch).
  int64_t counted(int64_t o, bool includes_pad) const {
    const int64_t border = includes_pad ? pad : 0, begin = first(o), end = begin + places(o);
    const int64_t count = least(end, size + border) - (begin < -border ? -border : begin);
    return count < 0 ? 0 : count;
  }
};

struct Pool {
  explicit Pool(const LoopCall& call)
      : p(params<PoolParams>(call)),
        rows{p.in_h, p.out_h, p.kernel_h, p.stride_h, p.pad_h, p.dilation_h, call.constant[0] != 0},
        columns{p.in_w,  p.out_w,      p.kernel_w,           p.stride_w,
                p.pad_w, p.dilation_w, call.constant[0] != 0} {}

  int64_t input(int64_t image, int64_t h, int64_t w) const {
    return ((image * p.in_h + h) * p.in_w + w) * p.channels;
  }
  int64_t output(int64_t image, int64_t oh, int64_t ow) const {
    return ((image * p.out_h + oh) * p.out_w + ow) * p.channels;
  }
  // Returns the divisor of an average.
  float divisor(int64_t oh, int64_t ow) const {
    const bool includes_pad = p.count_include_pad != 0;
    return static_cast<float>(rows.counted(oh, includes_pad) * columns.counted(ow, includes_pad));
  }
  // Calls body(image, h, w, channel, count) for blocks of channels of all pixels of [batch, high,
  // wide].
  template <class Body>
  void each_pixel(int64_t high, int64_t wide, int64_t width, const Body& body) const {
    const int64_t inputs = int64_t{p.batch} * p.in_h * p.in_w * p.channels;
    parallel_for(p.batch * high, inputs * width, [&](int64_t i) {
      for (int64_t w = 0; w < wide; ++w)
        blocks_of(p.channels, [&](int64_t c, int64_t n) { body(i / high, i % high, w, c, n); });
    });
  }

  const PoolParams& p;
  PoolAxis rows, columns;
};

struct alignas(64) Taps {
  int32_t at[block];
};

void read_taps(const Operand& tap, int64_t at, int64_t count, int32_t* to) {
  const uint8_t* const bytes = tap.as<uint8_t>(at);
  const int32_t* const words = tap.as<int32_t>(at);
  if (tap.dtype == DType::u8)
    each(count, [=](int64_t i) { to[i] = bytes[i]; });
  else
    each(count, [=](int64_t i) { to[i] = words[i]; });
}
void write_taps(const Operand& tap, int64_t at, int64_t count, const int32_t* from) {
  uint8_t* const bytes = tap.as<uint8_t>(at);
  int32_t* const words = tap.as<int32_t>(at);
  if (tap.dtype == DType::u8)
    each(count, [=](int64_t i) { bytes[i] = static_cast<uint8_t>(from[i]); });
  else
    each(count, [=](int64_t i) { words[i] = from[i]; });
}

// Tells whether each tap is one of `count`, or `none`.
bool are_taps(const Operand& tap, int64_t n, int32_t count, int32_t none) {
  bool all = true;
  blocks_of(n, [&](int64_t at, int64_t size) {
    Taps taps;
    read_taps(tap, at, size, taps.at);
    for (int64_t i = 0; i < size; ++i)
      all &= taps.at[i] == none || (taps.at[i] >= 0 && taps.at[i] < count);
  });
  return all;
}

}  // namespace

bool max_pool2d(const LoopCall& call) {
  const Pool pool(call);
  const Operand x = operand(call, 0), y = operand(call, 1), tap = operand(call, 2);
  pool.each_pixel(pool.p.out_h, pool.p.out_w, x.width,
                  [&](int64_t image, int64_t oh, int64_t ow, int64_t c, int64_t n) {
                    Block values, result;
                    Taps taps;
                    float* const best = result.at;
                    int32_t* const chosen = taps.at;
                    each(n, [=](int64_t i) { best[i] = -infinity, chosen[i] = -1; });
                    pool.rows.each_element(oh, [&](int64_t kh, int64_t h) {
                      pool.columns.each_element(ow, [&](int64_t kw, int64_t w) {
                        const float* const v = read(x, pool.input(image, h, w) + c, n, values.at);
                        const int32_t place = static_cast<int32_t>(kh * pool.p.kernel_w + kw);
                        each(n, [=](int64_t i) {  // the first NaN wins
                          const bool is_better =
                              (chosen[i] < 0) | (v[i] > best[i]) | (v[i] != v[i]);
                          const bool is_taken = is_better & (best[i] == best[i]);
                          best[i] = is_taken ? v[i] : best[i];
                          chosen[i] = is_taken ? place : chosen[i];
                        });
                      });
                    });
                    const int64_t at = pool.output(image, oh, ow) + c;
                    write(y, at, n, best);
                    write_taps(tap, at, n, chosen);
                  });
  return true;
}

bool max_pool2d_grad(const LoopCall& call) {
  const Pool pool(call);
  const Operand dy = operand(call, 0), tap = operand(call, 1), dx = operand(call, 2);
  const int64_t outputs = pool.output(pool.p.batch, 0, 0);
  const int32_t none = tap.dtype == DType::u8 ? 255 : -1;
  const int32_t places = static_cast<int32_t>(pool.p.kernel_h * pool.p.kernel_w);
  if (!are_taps(tap, outputs, places, none)) return false;
  pool.each_pixel(pool.p.in_h, pool.p.in_w, dx.width,
                  [&](int64_t image, int64_t h, int64_t w, int64_t c, int64_t n) {
                    Block values, result;
                    Taps taps;
                    float* const sum = result.at;
                    each(n, [=](int64_t i) { sum[i] = 0; });
                    pool.rows.each_window(h, [&](int64_t oh, int64_t kh) {
                      pool.columns.each_window(w, [&](int64_t ow, int64_t kw) {
                        const int64_t at = pool.output(image, oh, ow) + c;
                        const int32_t place = static_cast<int32_t>(kh * pool.p.kernel_w + kw);
                        const float* const g = read(dy, at, n, values.at);
                        const int32_t* const chosen = taps.at;
                        read_taps(tap, at, n, taps.at);
                        each(n, [=](int64_t i) { sum[i] += chosen[i] == place ? g[i] : 0.0f; });
                      });
                    });
                    write(dx, pool.input(image, h, w) + c, n, sum);
                  });
  return true;
}

bool avg_pool2d(const LoopCall& call) {
  const Pool pool(call);
  const Operand x = operand(call, 0), y = operand(call, 1);
  pool.each_pixel(pool.p.out_h, pool.p.out_w, x.width,
                  [&](int64_t image, int64_t oh, int64_t ow, int64_t c, int64_t n) {
                    Block values, result;
                    float* const sum = result.at;
                    each(n, [=](int64_t i) { sum[i] = 0; });
                    pool.rows.each_element(oh, [&](int64_t, int64_t h) {
                      pool.columns.each_element(ow, [&](int64_t, int64_t w) {
                        const float* const v = read(x, pool.input(image, h, w) + c, n, values.at);
                        each(n, [=](int64_t i) { sum[i] += v[i]; });
                      });
                    });
                    const float divisor = pool.divisor(oh, ow);
                    each(n, [=](int64_t i) { sum[i] /= divisor; });
                    write(y, pool.output(image, oh, ow) + c, n, sum);
                  });
  return true;
}

bool avg_pool2d_grad(const LoopCall& call) {
  const Pool pool(call);
  const Operand dy = operand(call, 0), dx = operand(call, 1);
  pool.each_pixel(pool.p.in_h, pool.p.in_w, dx.width,
                  [&](int64_t image, int64_t h, int64_t w, int64_t c, int64_t n) {
                    Block values, result;
                    float* const sum = result.at;
                    each(n, [=](int64_t i) { sum[i] = 0; });
                    pool.rows.each_window(h, [&](int64_t oh, int64_t) {
                      pool.columns.each_window(w, [&](int64_t ow, int64_t) {
                        const float* const g =
                            read(dy, pool.output(image, oh, ow) + c, n, values.at);
                        const float share = 1 / pool.divisor(oh, ow);
                        each(n, [=](int64_t i) { sum[i] += g[i] * share; });
                      });
                    });
                    write(dx, pool.input(image, h, w) + c, n, sum);
                  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
