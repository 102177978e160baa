// The cpu device: products and convolutions with any number of threads, work sharing, and its
// demands on callers.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <pthread.h>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/prepared_call.h"
#include "backends/cpu/work.h"
#include "backends/open.h"
#include "backends/reference/reference_backend.h"
#include "core/base/error.h"
#include "shaders/params.h"
#include "tests/backends/cpu/thread_count.h"
#include "tests/backends/product_check.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using namespace rw::kernels;
using rw::test::Env;
using rw::test::KernelRunner;
using rw::test::message_of;
using rw::test::ProductCheck;
using rw::test::ThreadCount;

namespace {

// Runs a table of products on backends that have one, two and three threads from the start. With
// oneDNN, each call has a plan.
void by_threads(void (ProductCheck::*table)() const) {
  const ThreadCount restore(1);
  std::vector<std::unique_ptr<Backend>> backends;
  std::vector<ProductCheck::Way> ways;
  for (int threads = 1; threads <= 3; ++threads) {
    Backend& backend = *backends.emplace_back(make_cpu_backend());
    ways.push_back({backend, [&backend, threads](const KernelCall& call) {
                      cpu::set_threads(threads);
                      const auto smallest = std::ranges::min(
                          call.bindings, {}, [](const Binding& b) { return b.range.size; });
                      const bool has_own_loop =  // a row of 16 bits
                          call.kernel == "matmul" && call.params_as<MatmulParams>().m == 1 &&
                          call.bindings[0].dtype != DType::f32;
                      const bool may_be_planned = !cpu::product_library().empty() && !has_own_loop;
                      if (may_be_planned && smallest.range.size > 0)
                        CHECK(backend.dry()->prepare(call) != nullptr);
                    }});
  }
  (ProductCheck(std::move(ways)).*table)();
}

std::vector<float> squares(int64_t count) {
  std::vector<float> result(static_cast<size_t>(count));
  cpu::parallel_for(
      count, [&](int64_t i) { result[static_cast<size_t>(i)] += static_cast<float>(i * i); });
  return result;
}

std::vector<float> expected_squares(int64_t count) {
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(static_cast<float>(i * i));
  return result;
}

MatmulParams matmul_params(uint32_t m, uint32_t n, uint32_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = {1, 1},
          .a_row = k,
          .a_col = 1,
          .b_row = n,
          .b_col = 1,
          .c_row = n,
          .alpha = 1};
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu backend: products in any layout") {
  by_threads(&ProductCheck::layouts);
  by_threads(&ProductCheck::whole_words);
  by_threads(&ProductCheck::batches);
}

TEST_CASE("cpu backend: products that are thin, large, or long sums") {
  by_threads(&ProductCheck::few_rows_or_terms);
  by_threads(&ProductCheck::large_factors);
  by_threads(&ProductCheck::long_sums);
}

TEST_CASE("cpu backend: convolutions and their gradients") {
  by_threads(&ProductCheck::convolutions);
}

TEST_CASE("cpu backend: NaN and infinities of factors are those of the result") {
  KernelRunner cpu(make_cpu_backend());
  constexpr uint32_t m = 20, n = 33, k = 40;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name(dtype));
    std::vector<float> a(m * k, 1), b(k * n, 1);
    a[3 * k + 7] = NAN;
    a[5 * k + 9] = INFINITY;
    a[6 * k + 9] = -INFINITY;
    b[9 * n + 2] = 0;  // 0 times an infinity is NaN
    const Binding c = cpu.allocate(m * n, dtype);
    cpu.run("matmul", {cpu.upload(a, dtype), cpu.upload(b, dtype), c}, matmul_params(m, n, k));
    const std::vector<float> y = cpu.download(c);
    for (uint32_t i = 0; i < m; ++i)
      for (uint32_t j = 0; j < n; ++j) {
        const float got = y[i * n + j];
        CAPTURE(i);
        CAPTURE(j);
        if (i == 3 || ((i == 5 || i == 6) && j == 2))
          CHECK(std::isnan(got));
        else if (i == 5 || i == 6)
          CHECK(got == (i == 5 ? INFINITY : -INFINITY));
        else
          CHECK(got == static_cast<float>(j == 2 ? k - 1 : k));
      }
  }
}

TEST_CASE("cpu backend: NaN and infinities of a pixel reach those that read it, and no others") {
  KernelRunner cpu(make_cpu_backend());
  constexpr uint32_t side = 11, channels = 32;
  const Conv2dParams p{.batch = 1,
                       .in_h = side,
                       .in_w = side,
                       .in_c = channels,
                       .out_h = side,
                       .out_w = side,
                       .out_c = channels,
                       .kernel_h = 3,
                       .kernel_w = 3,
                       .stride_h = 1,
                       .stride_w = 1,
                       .pad_h = 1,
                       .pad_w = 1,
                       .dilation_h = 1,
                       .dilation_w = 1,
                       .groups = 1};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const char* kernel : {"conv2d", "conv2d_dgrad"})
      for (const float special : {NAN, INFINITY, -INFINITY})
        for (uint32_t place = 0; place < side; ++place) {  // in each corner of a tile, and outside
          CAPTURE(name(dtype));
          CAPTURE(kernel);
          CAPTURE(special);
          CAPTURE(place);
          std::vector<float> x(side * side * channels, 1);
          x[(place * side + (place * 5) % side) * channels + 3] = special;
          const Binding y = cpu.allocate(x.size(), dtype);
          cpu.run(kernel,
                  {cpu.upload(x, dtype),
                   cpu.upload(std::vector<float>(channels * 9 * channels, 1), dtype), y},
                  p);
          const std::vector<float> made = cpu.download(y);
          const auto is_near = [](uint32_t a, uint32_t b) { return a <= b + 1 && b <= a + 1; };
          const auto pixels_read = [](uint32_t at) { return at == 0 || at == side - 1 ? 2u : 3u; };
          size_t wrong = 0;
          for (uint32_t i = 0; i < made.size(); ++i) {
            const uint32_t row = i / channels / side, col = i / channels % side;
            if (is_near(row, place) && is_near(col, (place * 5) % side))
              wrong += std::isfinite(made[i]);
            else
              wrong +=
                  made[i] != static_cast<float>(pixels_read(row) * pixels_read(col) * channels);
          }
          CHECK(wrong == 0);
        }
}

TEST_CASE("cpu backend: factors whose lines overlap") {
  KernelRunner cpu(make_cpu_backend()), reference(make_reference_backend());
  MatmulParams p = matmul_params(6, 5, 4);
  p.a_row = 1;  // overlapping windows of a line
  p.b_row = 0;  // the same line again and again
  const auto on = [&](KernelRunner& device) {
    const Binding c = device.allocate(6 * 5);
    device.run("matmul",
               {device.upload({1, 2, 3, 4, 5, 6, 7, 8, 9}), device.upload({2, 3, 5, 7, 11}), c}, p);
    return device.download(c);
  };
  CHECK(on(cpu) == on(reference));
}

TEST_CASE("cpu backend: a call has the scratch that its dry run foretells, or is refused") {
  const auto backend = make_cpu_backend();
  const auto dry = backend->dry();
  const MatmulParams p = matmul_params(64, 64, 4096);
  KernelRunner cpu(make_cpu_backend());
  const std::vector<Binding> bindings = {cpu.allocate(64 * 4096, DType::f16),
                                         cpu.allocate(4096 * 64, DType::f16),
                                         cpu.allocate(64 * 64)};
  KernelCall call{.kernel = "matmul", .bindings = bindings};
  call.params = std::as_bytes(std::span(&p, 1));
  const uint64_t bytes = backend->workspace_bytes(call);
  CHECK(dry->workspace_bytes(call) == bytes);
  if (bytes == 0) return;  // the plain loops need none
  CHECK(message_of<ValueError>([&] { cpu.backend().run(call); }) ==
        fmt::format("[matmul] the workspace must have {} bytes, got 0", bytes));
}

TEST_CASE("cpu backend: frames of loops may be larger than the caller's stack") {
  KernelRunner cpu(make_cpu_backend());
  const uint32_t rows = 3000, channels = 200;
  std::vector<float> values(rows * channels), ones(channels, 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) - 6;
  const Binding x = cpu.upload(values), one = cpu.upload(ones), sums = cpu.allocate(2 * channels);
  const auto run = [&](uint32_t count) {
    cpu.run("batch_norm_grad_stats", {x, x, one, one, sums},
            BatchNormParams{
                .offset = {}, .rows = count, .channels = channels, .eps = 0, .has_rest = 0});
  };
  run(rows);
  const std::vector<float> expected = cpu.download(sums);
  run(1);
  REQUIRE(cpu.download(sums) != expected);
  const std::function<void()> again = [&] {
    run(rows);
    // An error inside a call arrives here, too.
    CHECK(message_of<Error>([&] {
            cpu.run("unary", {x}, UnaryParams{.n = 1}, {0, 1});
          }).starts_with("[unary]"));
  };
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 128 << 10);
  pthread_t thread;
  const auto call = [](void* what) -> void* {
    (*static_cast<const std::function<void()>*>(what))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &small, call, const_cast<std::function<void()>*>(&again)) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
  CHECK(cpu.download(sums) == expected);
}

TEST_CASE("devices: the best one is a GPU, or one that is named, or the cpu") {
  const Env any("REWIND_DEVICE", "");
  {
    const Env driver("VK_DRIVER_FILES", "/nonexistent"), older("VK_ICD_FILENAMES", "/nonexistent");
    CHECK(best_device() == "cpu");
    CHECK(open_backend("auto")->info().backend == "cpu");
    CHECK(open_backend("dry")->info().backend == "cpu");
  }
  const Env named("REWIND_DEVICE", "llvmpipe");
  CHECK(best_device() == "vulkan");
}

TEST_CASE("cpu work: each piece is done once, whoever shares it out") {
  for (const int threads : {1, 2, 3, 64}) {
    CAPTURE(threads);
    const ThreadCount some(threads);
    CHECK(cpu::threads() == threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) CHECK(squares(count) == expected_squares(count));
    // Shares out work within a piece, and from several threads at a time.
    std::array<std::vector<float>, 5> nested;
    cpu::parallel_for(5, [&](int64_t i) { nested[static_cast<size_t>(i)] = squares(100); });
    for (const std::vector<float>& result : nested) CHECK(result == expected_squares(100));
    std::atomic<int> wrong = 0;
    {
      std::vector<std::jthread> callers;
      for (int caller = 0; caller < 3; ++caller)
        callers.emplace_back([&] {
          for (int turn = 0; turn < 200; ++turn) wrong += squares(50) != expected_squares(50);
        });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("cpu work: the ranks of a machine share its cores") {
  const Env none("OMP_NUM_THREADS", ""), alone("OMPI_COMM_WORLD_LOCAL_SIZE", ""),
      alone_by_hydra("MPI_LOCALNRANKS", "");
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), all = cpu::default_threads();
  CHECK(all >= 1);
  CHECK(all <= cores);
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    CAPTURE(name);
    for (const int ranks : {1, 2, 3, 4, 1000}) {
      const Env started(name, std::to_string(ranks));
      CHECK(cpu::default_threads() == std::min(all, std::max(1, cores / ranks)));
    }
    const Env nonsense(name, "many");
    CHECK(cpu::default_threads() == all);
  }
  const Env ranks("OMPI_COMM_WORLD_LOCAL_SIZE", "1000"), wanted("OMP_NUM_THREADS", "3");
  CHECK(cpu::default_threads() == 3);  // the variable counts
}

TEST_CASE("cpu work: a rank that is tied to a core has one thread") {
  const Env none("OMP_NUM_THREADS", ""), alone("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  std::jthread([] {  // a thread with an affinity of its own
    cpu_set_t one;
    REQUIRE(sched_getaffinity(0, sizeof one, &one) == 0);
    int core = 0;
    while (!CPU_ISSET(core, &one)) ++core;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(cpu::default_threads() == 1);
  })
      .join();
}

TEST_CASE("cpu work: several threads take part") {
  const ThreadCount two(2);
  // The piece waits for another one, which is therefore on another thread.
  std::atomic<int> inside = 0;
  cpu::parallel_for(2, [&](int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  CHECK(inside == 2);
}

TEST_CASE("cpu work: a thread that leaves the core of another may run where it could before") {
  cpu_set_t all, one, after;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  const ThreadCount two(2);
  const auto on_both = [](const auto& body) {
    std::atomic<int> inside = 0;
    cpu::parallel_for(2, [&](int64_t) {
      body();
      for (++inside; inside < 2;) std::this_thread::yield();
    });
  };
  on_both([&] { sched_setaffinity(0, sizeof one, &one); });  // now they are on one
  on_both([&] {
    if (cpu::slot() != 0) sched_setaffinity(0, sizeof all, &all);
  });
  on_both([&] {
    if (cpu::slot() != 0) sched_getaffinity(0, sizeof after, &after);
  });
  sched_setaffinity(0, sizeof all, &all);
  CHECK(CPU_EQUAL(&after, &all));
}

TEST_CASE("cpu work: a copy of the process computes alone") {
  const ThreadCount two(2);
  CHECK(squares(10) == expected_squares(10));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int wrong = 0;
    for (int turn = 0; turn < 20; ++turn) wrong += squares(1000) != expected_squares(1000);
    _exit(wrong);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_SUITE_END();
