// Times of kernels, ops and training steps. By itself it prints them; benchmarks/speed.py runs it
// as a server beside others, in turns, and tells ratios.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

#include "benchmarks/speed/cases.h"
#include "core/base/error.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

namespace {

using namespace rw;
using speed::Case;
using speed::Work;

double seconds_of(const Work& work, int runs, bool on_device) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) work();
  if (on_device) default_device()->synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A piece of work that has run often enough to be warm.
class Measured {
 public:
  Measured(Work work, bool on_device, double round)
      : work_(std::move(work)), on_device_(on_device) {
    double took = 0;
    for (int i = 0; i < 2; ++i) took = seconds_of(work_, 1, on_device_);  // compiles
    for (; took < round / 4 && runs_ < 1 << 20; took = seconds_of(work_, runs_, on_device_))
      runs_ = std::max(runs_ + 1, static_cast<int>(runs_ * std::min(8.0, round / (2 * took))));
  }
  // Seconds of a run, the mean of one round.
  double time() const { return seconds_of(work_, runs_, on_device_) / runs_; }

 private:
  Work work_;
  bool on_device_;
  int runs_ = 1;
};

struct Settings {
  DeviceOptions device;
  std::string only;
  double round = 0.2;
  bool large = false, list = false, serve = false, reference = false;
};

std::vector<Case> wanted(const Settings& settings) {
  std::vector<Case> cases = speed::all_cases();
  std::erase_if(cases, [&](const Case& c) {
    return c.is_large != settings.large || c.name.find(settings.only) == std::string::npos;
  });
  return cases;
}

std::unique_ptr<Measured> prepared(const Settings& settings, const std::string& name) {
  if (settings.reference)
    return std::make_unique<Measured>(speed::reference(name), false, settings.round);
  for (const Case& c : speed::all_cases())
    if (c.name == name)
      return std::make_unique<Measured>(c.make(settings.device.parsed_dtype()), true,
                                        settings.round);
  throw ValueError(fmt::format("[speed] no such case: {}", name));
}

// A line asks for a round of the case that it names, a line answers: seconds, or "skip" and why.
void serve(const Settings& settings) {
  std::string last;
  std::unique_ptr<Measured> work;
  for (std::string name; std::getline(std::cin, name); last = name) {
    try {
      if (name != last) {
        work.reset();
        work = prepared(settings, name);
      }
      if (!work) throw ValueError("[speed] it could not be prepared");
      fmt::print("{:.9f}\n", work->time());
    } catch (const Error& e) {
      fmt::print("skip {}\n", e.what());
    }
    std::fflush(stdout);
  }
}

void print_table(const Settings& settings) {
  fmt::print("{:<44} {:>12} {:>10} {:>10}\n", "case", "ms", "GF/s", "GB/s in f32");
  for (const Case& c : wanted(settings)) {
    const std::unique_ptr<Measured> work = prepared(settings, c.name);
    double best = work->time();
    for (int i = 0; i < 4; ++i) best = std::min(best, work->time());
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.1f}", amount / best * 1e-9) : std::string();
    };
    fmt::print("{:<44} {:>12.3f} {:>10} {:>10}\n", c.name, best * 1e3, rate(c.flops),
               rate(c.bytes));
    std::fflush(stdout);
  }
}

void run(const Settings& settings) {
  if (settings.list) {
    for (const Case& c : wanted(settings))
      fmt::print("{} {:.0f} {:.0f}\n", c.name, c.flops, c.bytes);
    return;
  }
  if (!settings.reference) settings.device.open();
  settings.serve ? serve(settings) : print_table(settings);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times of kernels, ops and training steps; beside others: benchmarks/speed.py");
  Settings settings;
  settings.device.dtype = "f32";
  settings.device.add_to(app);
  shared_option(app, "--only", settings.only, "cases");
  app.add_option("--round", settings.round, "the seconds to measure at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--large", settings.large,
               "measure the cases that take a CPU minutes, instead of the others");
  app.add_flag("--list", settings.list, "list names, operations and bytes of the cases");
  app.add_flag("--serve", settings.serve, "measure the cases named on standard input");
  app.add_flag("--reference", settings.reference,
               "measure OpenBLAS and memcpy instead of a device, if they do the same");
  return run_program(app, argc, argv, [&] { run(settings); });
}
