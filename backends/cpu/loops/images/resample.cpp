// Resampling of images to other sizes. An output pixel reads up to 4 x 4 input pixels.
#include <cstdlib>

#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Host memory for partial results, which are few.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes > 0 ? std::malloc(bytes) : nullptr) {}
  ~Scratch() { std::free(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  explicit operator bool() const { return memory_ != nullptr; }  // false: there is no memory
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_;
};

// The elements that one place of an axis reads, and their weights.
struct Reads {
  int64_t at[4];
  double weight[4];
  int count = 0;

  void add(int64_t i, int64_t last, double w) {
    at[count] = i < 0 ? 0 : least(i, last);
    weight[count++] = w;
  }
};

// The kernel of Keys 1981 with a = -0.75, at distance d.
double keys(double d) {
  constexpr double a = -0.75;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

struct ResampleAxis {
  uint32_t kind;
  bool align;
  int64_t inputs, outputs;
  float scale;

  Reads reads(int64_t o) const {
    const bool between = kind == RESAMPLE_LINEAR || kind == RESAMPLE_CUBIC;
    const float half = kind == RESAMPLE_NEAREST || (between && align) ? 0 : 0.5f;
    const int64_t last = inputs - 1;
    float at = (static_cast<float>(o) + half) * scale;
    Reads all;
    if (!between) {
      all.add(static_cast<int64_t>(at), last, 1);
      return all;
    }
    at -= half;
    if (kind == RESAMPLE_LINEAR) {
      const float most = static_cast<float>(last);
      at = at < 0 ? 0 : at > most ? most : at;
    }
    const int64_t from = static_cast<int64_t>(floor(at));
    const double t = double{at} - static_cast<double>(from);
    if (kind == RESAMPLE_CUBIC) {
      for (int k = -1; k <= 2; ++k) all.add(from + k, last, keys(__builtin_fabs(t - k)));
    } else {
      all.add(from, last, 1 - t);
      if (t > 0) all.add(from + 1, last, t);
    }
    return all;
  }
  // Returns the first output that reads element `at` or a later one; outputs in order read elements
  // in order.
  int64_t first_reader(int64_t at) const {
    int64_t low = 0, high = outputs;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const Reads r = reads(middle);
      if (r.at[r.count - 1] < at)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

struct ResampleCall {
  explicit ResampleCall(const LoopCall& call)
      : p(params<ResampleParams>(call)),
        rows{call.constant[0], call.constant[1] != 0, p.in_h, p.out_h, p.scale_h},
        columns{call.constant[0], call.constant[1] != 0, p.in_w, p.out_w, p.scale_w} {}
  int64_t input_row(int64_t image, int64_t h) const {
    return (image * p.in_h + h) * p.in_w * p.channels;
  }
  int64_t output_row(int64_t image, int64_t oh) const {
    return (image * p.out_h + oh) * p.out_w * p.channels;
  }
  int64_t bytes(const Operand& x) const {
    return (input_row(p.batch, 0) + output_row(p.batch, 0)) * x.width;
  }

  const ResampleParams& p;
  ResampleAxis rows, columns;
};

}  // namespace

bool resample2d(const LoopCall& call) {
  const ResampleCall r(call);
  const Operand x = operand(call, 0), y = operand(call, 1);
  const int64_t channels = r.p.channels, high = r.p.out_h;
  parallel_for(r.p.batch * high, r.bytes(x), [&](int64_t i) {
    const Reads rows = r.rows.reads(i % high);
    for (int64_t ow = 0; ow < r.p.out_w; ++ow) {
      const Reads columns = r.columns.reads(ow);
      blocks_of(channels, [&](int64_t c, int64_t n) {
        Block values, result;
        float* const sum = result.at;
        each(n, [=](int64_t k) { sum[k] = 0; });
        for (int a = 0; a < rows.count; ++a)
          for (int b = 0; b < columns.count; ++b) {
            const int64_t at = r.input_row(i / high, rows.at[a]) + columns.at[b] * channels + c;
            const float* const v = read(x, at, n, values.at);
            const float weight = static_cast<float>(rows.weight[a] * columns.weight[b]);
            each(n, [=](int64_t k) { sum[k] += weight * v[k]; });
          }
        write(y, r.output_row(i / high, i % high) + ow * channels + c, n, sum);
      });
    }
  });
  return true;
}

// A row of dx collects from the rows of dy that read it, whose pixels add to those that they read.
bool resample2d_grad(const LoopCall& call) {
  const ResampleCall r(call);
  const Operand dy = operand(call, 0), dx = operand(call, 1);
  const int64_t channels = r.p.channels, high = r.p.in_h, size = r.p.in_w * channels;
  const bool in_place = dx.dtype == DType::f32;
  const Scratch scratch(in_place ? 0 : static_cast<size_t>(r.p.batch * high * size) * 4);
  if (!in_place && !scratch) return false;
  parallel_for(r.p.batch * high, r.bytes(dy), [&](int64_t i) {
    const int64_t image = i / high, h = i % high, begin = r.input_row(image, h);
    float* const row = (in_place ? dx.as<float>() : scratch.as<float>()) + begin;
    for (int64_t k = 0; k < size; ++k) row[k] = 0;
    for (int64_t oh = r.rows.first_reader(h); oh < r.p.out_h; ++oh) {
      const Reads rows = r.rows.reads(oh);
      if (rows.at[0] > h) break;
      double row_weight = 0;
      for (int a = 0; a < rows.count; ++a) row_weight += rows.at[a] == h ? rows.weight[a] : 0;
      for (int64_t ow = 0; ow < r.p.out_w; ++ow) {
        const Reads columns = r.columns.reads(ow);
        for (int b = 0; b < columns.count; ++b) {
          float* const to = row + columns.at[b] * channels;
          const float weight = static_cast<float>(row_weight * columns.weight[b]);
          blocks_of(channels, [&](int64_t c, int64_t n) {
            Block values;
            const int64_t at = r.output_row(image, oh) + ow * channels + c;
            const float* const g = read(dy, at, n, values.at);
            float* const sum = to + c;
            each(n, [=](int64_t k) { sum[k] += weight * g[k]; });
          });
        }
      }
    }
    write(dx, begin, size, row);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
