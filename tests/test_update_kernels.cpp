// The kernels of an optimizer's update on Vulkan against the cpu backend.
#include <limits>

#include "tests/compare_kernels.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

constexpr DType floats[] = {DType::f32, DType::f16};

uint32_t flat(uint32_t n) {
  return (n + REWIND_FLAT - 1) / REWIND_FLAT;
}

std::vector<float> state(float updates, float found_inf = 0) {
  std::vector<float> s(STATE_SIZE, 0);
  s[STATE_SCALE] = 1024;
  s[STATE_GOOD] = 1;
  s[STATE_FOUND_INF] = found_inf;
  s[STATE_UPDATES] = updates;
  s[STATE_LR_FACTOR] = 0.5f;
  s[STATE_GRAD_FACTOR] = 0.25f;
  return s;
}

}  // namespace

TEST_CASE("kernels: grad_stats") {
  KernelComparison* const both = KernelComparison::instance();
  if (both == nullptr) return;
  both->tolerance = 1e-4;
  for (DType t : floats)
    for (uint32_t n : {1u, 100u, 5000u}) {
      const uint32_t chunk = 1024, chunks = (n + chunk - 1) / chunk;
      const GradStatsParams p{.n = n, .chunk = chunk, .chunks = chunks};
      auto g = values(n);
      both->run("grad_stats", {in(t, g), out(DType::f32, 2 * chunks)}, p, {}, {chunks});
      for (float bad :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        g[n / 2] = bad;
        both->run("grad_stats", {in(t, g), out(DType::f32, 2 * chunks)}, p, {}, {chunks});
      }
    }
}

TEST_CASE("kernels: update_prepare") {
  KernelComparison* const both = KernelComparison::instance();
  if (both == nullptr) return;
  both->tolerance = 2e-5;
  for (uint32_t schedule = 0; schedule < 5; ++schedule)
    for (float updates : {0.0f, 4.0f, 37.0f, 250.0f})
      for (float overflow : {0.0f, 1.0f})
        for (uint32_t dynamic : {0u, 1u}) {
          const UpdatePrepareParams p{.chunks = 3,
                                      .weight = 4,
                                      .max_norm = updates > 4 ? 0.001f : 0,
                                      .schedule = schedule,
                                      .warmup = 5,
                                      .total = 200,
                                      .period = 30,
                                      .floor_factor = 0.1f,
                                      .gamma = 0.7f,
                                      .dynamic = dynamic,
                                      .keep_bad = 1,
                                      .hysteresis = 1,
                                      .interval = 2,
                                      .growth = 2,
                                      .backoff = 0.5f,
                                      .min_scale = 1,
                                      .max_scale = 65536};
          both->run("update_prepare",
                    {in(DType::f32, {1, 2, 3, 0, overflow, 0}), inout(DType::f32, state(updates))},
                    p, {}, {1});
        }
}

TEST_CASE("kernels: sgd and adam") {
  KernelComparison* const both = KernelComparison::instance();
  if (both == nullptr) return;
  both->tolerance = 2e-5;
  for (DType t : floats)
    for (uint32_t n : {0u, 1u, 13u, 1003u})
      for (float updates : {1.0f, 2.0f, 1000.0f})
        for (uint32_t flags = 0; flags < 4; ++flags) {
          const auto param = inout(DType::f32, values(n)), grad = in(t, values(n, -1, 1, 2));
          const auto first = inout(DType::f32, values(n, -0.1f, 0.1f, 3));
          const auto second = inout(DType::f32, values(n, 0.1f, 1, 4));
          const auto s = in(DType::f32, state(updates, flags == 3));
          both->run("sgd", {param, grad, first, s},
                    SgdParams{.n = n,
                              .lr = 0.1f,
                              .momentum = flags == 0 ? 0 : 0.9f,
                              .dampening = flags == 1 ? 0.1f : 0,
                              .weight_decay = 0.01f,
                              .nesterov = flags == 2,
                              .maximize = flags == 1},
                    {}, {flat(n)});
          both->run("adam", {param, grad, first, second, s},
                    AdamParams{.n = n,
                               .lr = 0.01f,
                               .beta1 = 0.9f,
                               .beta2 = 0.999f,
                               .eps = 1e-8f,
                               .weight_decay = 0.1f,
                               .decoupled = flags & 1},
                    {}, {flat(n)});
        }
}
