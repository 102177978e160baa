// Times of depthwise convolutions and their gradients at the sizes of MobileNetV2 and EfficientNet;
// peers/depthwise.py times PyTorch's.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "backends/open.h"
#include "ops/ops.h"

using namespace rw;

namespace {

struct Row {
  int size, channels, kernel, stride;
};

// Seconds of the fastest round; `body` is given what `prepare` makes, which is not timed.
template <class P, class B>
double fastest(int rounds, const P& prepare, const B& body) {
  double best = 1e9;
  for (int round = 0; round < rounds + 1; ++round) {
    auto value = prepare();
    default_device()->synchronize();
    const auto start = std::chrono::steady_clock::now();
    auto result = body(value);
    default_device()->synchronize();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (round > 0) best = std::min(best, time.count());  // the first compiles pipelines
  }
  return best;
}

void measure(const Row& r, int batch, int rounds) {
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

int main(int argc, char** argv) try {
  CLI::App app("Milliseconds of depthwise convolutions: forward, gradient of x, gradient of w");
  std::string device = "vulkan";
  int batch = 8, rounds = 9;
  app.add_option("--device", device)->capture_default_str();
  app.add_option("--batch", batch)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--rounds", rounds, "the fastest counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1001));
  CLI11_PARSE(app, argc, argv);
  set_default_device(open_backend(device));
  for (const Row& r : {Row{112, 32, 3, 1}, Row{112, 96, 3, 2}, Row{56, 144, 3, 1},
                       Row{28, 192, 3, 1}, Row{14, 576, 3, 1}, Row{14, 576, 3, 2},
                       Row{7, 960, 3, 1}, Row{28, 240, 5, 1}, Row{14, 672, 5, 1}})
    measure(r, batch, rounds);
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
