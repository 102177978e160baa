// Tests that a dry run predicts what a program needs.
#pragma once

#include <doctest/doctest.h>

#include <functional>

#include "../backends/open.h"
#include "../core/predict/dry_run.h"

namespace rw::test {

// Checks the peak that a dry run of `program` tells against a run of `real` on a new device of the
// default one's kind, which is the default one from then on.
inline void check_forecast(const std::function<void()>& program,
                           const std::function<void()>& real) {
  const auto device = Device::create(open_backend(default_device()->info().backend));
  exchange_default_device(device);
  const Forecast forecast = plan(program);
  real();
  const MemoryReport report = device->memory_report();
  CHECK(forecast.memory.peak == report.peak);
  CHECK(forecast.memory.peak_by_purpose == report.peak_by_purpose);
  CHECK(forecast.memory.peak_reserved == report.peak_reserved);
}
inline void check_forecast(const std::function<void()>& program) {
  check_forecast(program, program);
}

}  // namespace rw::test
