// Times of depthwise convolutions and their gradients at the sizes of MobileNetV2 and EfficientNet;
// peers/depthwise.py times PyTorch's.
#include <fmt/format.h>

#include <algorithm>

#include "benchmarks/bench/bench.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

struct DepthwiseRow {
  int size, channels, kernel, stride;
};

// Seconds of the fastest round; `body` is given what `prepare` makes, which is not timed.
template <class P, class B>
double fastest(int rounds, const P& prepare, const B& body) {
  double best = 1e9;
  for (int round = 0; round < rounds + 1; ++round) {
    auto value = prepare();
    const double time = seconds_of([&] { body(value); });
    if (round > 0) best = std::min(best, time);  // the first compiles pipelines
  }
  return best;
}

void measure_depthwise(const DepthwiseRow& r, int batch, int rounds) {
  const Tensor x = randn({batch, r.size, r.size, r.channels});
  const Tensor w = randn({r.channels, r.kernel, r.kernel, 1});
  const Conv2dOptions options{.stride = r.stride, .padding = r.kernel / 2, .groups = r.channels};
  const auto run = [&] { return conv2d(x, w, options); };
  const Tensor seed = randn(run().shape());
  const double forward = fastest(
      rounds, [] { return 0; }, [&](int) { return run(); });
  const auto gradient = [&](Tensor of) {
    of.set_requires_grad(true);
    const double time = fastest(rounds, run, [&](Tensor& y) {
      y.backward(seed);
      of.set_grad({});
      return 0;
    });
    of.set_requires_grad(false);
    return time;
  };
  const double data = gradient(x), weight = gradient(w);
  fmt::print("{}x{}x{}x{} {}x{}/{}: {:.2f} {:.2f} {:.2f}\n", batch, r.size, r.size, r.channels,
             r.kernel, r.kernel, r.stride, forward * 1e3, data * 1e3, weight * 1e3);
}

}  // namespace

Run depthwise(CLI::App& app) {
  app.description("Milliseconds of depthwise convolutions: forward, gradient of x, gradient of w.");
  struct Options {
    std::string device = "vulkan";
    int batch = 8, rounds = 9;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--device", o->device)->capture_default_str();
  shared_option(app, "--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1024));
  shared_option(app, "--rounds", o->rounds, "the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1001));
  return [o] {
    set_default_device(open_backend(o->device));
    for (const DepthwiseRow& r :
         {DepthwiseRow{112, 32, 3, 1}, DepthwiseRow{112, 96, 3, 2}, DepthwiseRow{56, 144, 3, 1},
          DepthwiseRow{28, 192, 3, 1}, DepthwiseRow{14, 576, 3, 1}, DepthwiseRow{14, 576, 3, 2},
          DepthwiseRow{7, 960, 3, 1}, DepthwiseRow{28, 240, 5, 1}, DepthwiseRow{14, 672, 5, 1}})
      measure_depthwise(r, o->batch, o->rounds);
  };
}

}  // namespace rw::bench
