// The common part of the benchmarks of `bench NAME`.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "../../backends/open.h"
#include "../../ops/ops.h"

namespace rw::bench {

// Each function describes its benchmark, adds its options to `app`, its subcommand, and returns
// what runs it.
using Run = std::function<void()>;
Run data_parallel(CLI::App& app);
Run eight_bits(CLI::App& app);
Run lora_step(CLI::App& app);
Run model_choices(CLI::App& app);
Run models_fit(CLI::App& app);
Run offloads(CLI::App& app);
Run op_overhead(CLI::App& app);
Run plain_step(CLI::App& app);
Run plan_costs(CLI::App& app);
Run sharding(CLI::App& app);

// Zeros that count as data.
Tensor data(const Shape& shape, DType dtype = DType::f32);
double mib(uint64_t bytes);

// Seconds that body() takes, with all the work that it gives to the device.
template <class Body>
double seconds_of(const Body& body) {
  default_device()->synchronize();
  const auto start = std::chrono::steady_clock::now();
  body();
  default_device()->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace rw::bench
