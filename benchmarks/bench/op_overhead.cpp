// The cost of an op on the host: time and heap allocations of one recorded op and of its backward,
// on a dry device, which does nothing. Every op of a chain keeps the tape's handle of the one
// before.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <vector>

#include "benchmarks/bench/bench.h"
#include "ops/operators.h"
#include "trainer/program/shared_options.h"

namespace {

std::atomic<uint64_t> heap_calls = 0;  // of the whole program

}  // namespace

// Not inlined: compilers would find new and free() that do not belong together.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++heap_calls;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace rw::bench {

namespace {

struct Cost {
  double us = 0, allocations = 0;  // per op
};

template <class F>
Cost cost_of(int ops, F&& body) {
  using Clock = std::chrono::steady_clock;
  const uint64_t before = heap_calls;
  const auto start = Clock::now();
  body();
  const std::chrono::duration<double, std::micro> us = Clock::now() - start;
  return {us.count() / ops, static_cast<double>(heap_calls - before) / ops};
}

struct OpRow {
  const char* name;
  std::function<Tensor(Tensor)> op;
};

Cost median(std::vector<Cost> all) {
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.us < b.us; });
  return all[all.size() / 2];
}

void run_ops(int ops, int rounds) {
  Tensor w = zeros({64, 64});
  w.set_requires_grad();
  const OpRow rows[] = {{"relu(x)", [](Tensor x) { return relu(std::move(x)); }},
                        {"x + w", [&](Tensor x) { return std::move(x) + w; }},
                        {"x * w", [&](Tensor x) { return std::move(x) * w; }},
                        {"matmul(x, w)", [&](Tensor x) { return matmul(std::move(x), w); }}};
  fmt::print(
      "| op | forward us | allocations | backward us | allocations |\n"
      "|---|---:|---:|---:|---:|\n");
  for (const OpRow& row : rows) {
    std::vector<Cost> forward, backward;
    for (int round = 0; round < rounds; ++round) {
      Tensor x = zeros({64, 64});
      x.set_requires_grad();
      forward.push_back(cost_of(ops, [&] {
        for (int i = 0; i < ops; ++i) x = row.op(std::move(x));
      }));
      const Tensor seed = zeros({64, 64});
      backward.push_back(cost_of(ops, [&] { x.backward(seed); }));
      w.set_grad({});
      default_device()->end_step();
    }
    const Cost f = median(std::move(forward)), b = median(std::move(backward));
    fmt::print("| `{}` | {:.2f} | {:.1f} | {:.2f} | {:.1f} |\n", row.name, f.us, f.allocations,
               b.us, b.allocations);
  }
}

}  // namespace

Run op_overhead(CLI::App& app) {
  app.description("Host time and heap allocations of recorded ops, on a dry device.");
  struct Options {
    std::string device = "dry:cpu";
    int ops = 1000, rounds = 51;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--device", o->device, "or dry:DEVICE")->capture_default_str();
  app.add_option("--chain", o->ops, "the number of ops in a chain")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  shared_option(app, "--rounds", o->rounds, "the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10001));
  return [o] {
    set_default_device(open_backend(o->device));
    run_ops(o->ops, o->rounds);
  };
}

}  // namespace rw::bench
