// The vector loops of pooling, resampling and padding of images, compared with those of the
// reference.
#include <doctest/doctest.h>

#include "backends/cpu/cpu_backend.h"
#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"
#include "tests/fixtures/kernel_runner.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

struct PoolWindow {
  uint32_t kernel, stride, pad, dilation, out_h, out_w, channels, adaptive = 0;
};
// The windows are for images of 11 x 9.
constexpr PoolWindow windows[] = {{2, 2, 0, 1, 5, 4, 8},     {3, 2, 1, 1, 6, 5, 17},
                                  {3, 2, 1, 1, 6, 5, 1},     {3, 1, 1, 2, 9, 7, 5},
                                  {3, 2, 0, 1, 6, 5, 3},  // the last windows end beyond the image
                                  {4, 0, 0, 1, 4, 3, 33, 1}, {11, 0, 0, 1, 1, 1, 1030, 1}};

PoolParams pool_params(const PoolWindow& w, uint32_t count_include_pad) {
  return {.offset = {},
          .batch = 3,
          .in_h = 11,
          .in_w = 9,
          .channels = w.channels,
          .out_h = w.out_h,
          .out_w = w.out_w,
          .kernel_h = w.kernel,
          .kernel_w = w.kernel,
          .stride_h = w.stride,
          .stride_w = w.stride,
          .pad_h = w.pad,
          .pad_w = w.pad,
          .dilation_h = w.dilation,
          .dilation_w = w.dilation,
          .count_include_pad = count_include_pad};
}

// Returns the taps of some images, with some empty windows among them.
LoopArgument taps_of(const PoolWindow& w, DType dtype) {
  KernelRunner reference(make_reference_backend());
  std::vector<float> x;
  for (uint32_t i = 0; i < 3 * 11 * 9 * w.channels; ++i)
    x.push_back(static_cast<float>(i * 7919 % 1000));
  const uint64_t m = uint64_t{3} * w.out_h * w.out_w * w.channels;
  const Binding y = reference.allocate(m), tap = reference.allocate(m, dtype);
  reference.run("max_pool2d", {reference.upload(x), y, tap}, pool_params(w, 0), {w.adaptive});
  LoopArgument taps{m, dtype, Fill::given, reference.download(tap)};
  for (uint64_t i = 5; i < m; i += 11) taps.values[i] = dtype == DType::u8 ? 255.0f : -1.0f;
  return taps;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: pooling and its gradients") {
  for (const DType dtype : floats)
    for (const PoolWindow& w : windows)
      for (const Fill fill : {Fill::numbers, Fill::specials}) {
        CAPTURE(w.kernel);
        CAPTURE(w.channels);
        const uint32_t n = 3 * 11 * 9 * w.channels, m = 3 * w.out_h * w.out_w * w.channels;
        const LoopArgument x{n, dtype, fill}, y{m, dtype};
        for (const DType taps : {DType::u8, DType::i32}) {
          check_loop({"max_pool2d", {x, y, {m, taps}}, {w.adaptive}}, pool_params(w, 0));
          const LoopArgument tap = taps_of(w, taps);
          check_loop({"max_pool2d_grad", {y, tap, {n, dtype}}, {w.adaptive}}, pool_params(w, 0));
        }
        if (w.dilation > 1) continue;
        for (const uint32_t counts : {0u, 1u}) {
          check_loop({"avg_pool2d", {x, y}, {w.adaptive}, 1e-5}, pool_params(w, counts));
          check_loop({"avg_pool2d_grad", {y, x}, {w.adaptive}, 1e-5}, pool_params(w, counts));
        }
      }
}

TEST_CASE("cpu loops: a tap that its window does not have is refused") {
  KernelRunner cpu(make_cpu_backend());
  const Binding dy = cpu.allocate(3 * 5 * 4 * 8),
                tap = cpu.upload(std::vector<float>(480, 4), DType::i32);
  const Binding dx = cpu.allocate(3 * 11 * 9 * 8);
  CHECK_THROWS_AS(cpu.run("max_pool2d_grad", {dy, tap, dx}, pool_params(windows[0], 0)),
                  ValueError);
}

TEST_CASE("cpu loops: images of other sizes") {
  struct Sizes {
    uint32_t in_h, in_w, out_h, out_w;
  };
  for (const DType dtype : floats)
    for (const Sizes s : {Sizes{5, 7, 10, 14}, Sizes{5, 7, 13, 5}, Sizes{9, 8, 4, 3},
                          Sizes{1, 1, 6, 2}, Sizes{6, 6, 6, 6}})
      for (const uint32_t kind :
           {RESAMPLE_NEAREST, RESAMPLE_NEAREST_EXACT, RESAMPLE_LINEAR, RESAMPLE_CUBIC})
        for (const uint32_t align : {0u, 1u})
          for (const uint32_t channels : {1u, 3u, 1100u}) {
            CAPTURE(kind);
            CAPTURE(s.out_h);
            const ResampleParams p{
                .offset = {},
                .batch = 2,
                .in_h = s.in_h,
                .in_w = s.in_w,
                .channels = channels,
                .out_h = s.out_h,
                .out_w = s.out_w,
                .scale_h = static_cast<float>(s.in_h) / static_cast<float>(s.out_h),
                .scale_w = static_cast<float>(s.in_w) / static_cast<float>(s.out_w)};
            const LoopArgument x{2 * s.in_h * s.in_w * channels, dtype},
                y{2 * s.out_h * s.out_w * channels, dtype};
            check_loop({"resample2d", {x, y}, {kind, align}, 1e-5}, p);
            check_loop({"resample2d_grad", {y, x}, {kind, align}, 1e-5}, p);
          }
}

TEST_CASE("cpu loops: borders") {
  for (const DType dtype : floats)
    for (const uint32_t mode : {PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR})
      for (const uint32_t inner : {1u, 19u}) {
        const uint32_t outer = 3, size = 6, before = 5, padded = size + before + 4;
        const PadAxisParams p{{}, outer, size, padded, inner, before};
        const LoopArgument x{outer * size * inner, dtype, Fill::specials},
            y{outer * padded * inner, dtype};
        check_loop({"pad_axis", {x, y}, {mode}}, p);
        check_loop({"pad_axis_grad", {y, x}, {mode}, 1e-5}, p);
      }
}

TEST_SUITE_END();
