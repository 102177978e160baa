// Measures which way this device runs matrix products and convolutions fastest, for the models of
// the benchmarks or for another program's, and stores the result.
#include "backends/tune.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/common/standard_steps.h"
#include "core/base/error.h"
#include "core/base/interrupt.h"
#include "core/memory/memory_report.h"
#include "planner/dry_run.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

using namespace rw;

namespace {

struct Settings {
  TuneOptions tune;
  std::string log, model, dtype;  // empty: none; all; f32 and f16
  bool dry = false, reset = false;
};

// The products of the standard models' training steps, from dry runs.
std::vector<std::string> standard_products(const Settings& settings) {
  const auto products = std::make_shared<std::vector<std::string>>();
  std::vector<DType> dtypes = {DType::f32, DType::f16};
  if (!settings.dtype.empty()) dtypes = {parse_dtype(settings.dtype)};
  for (const DType dtype : dtypes)
    for (const StandardStep& step : standard_steps()) {
      if (step.name.find(settings.model) == step.name.npos) continue;
      if (step.is_large && step.name != settings.model) continue;
      dry_run(open_listening(settings.tune.device, products), [&] {
        const auto work = step.make(dtype);
        work();
      });
    }
  check(!products->empty(), "tune", "no model's name contains '{}'", settings.model);
  return *products;
}

std::string change(const TunedClass& c) {
  if (c.workspace_before == c.workspace_after) return "";
  return fmt::format("{} -> {}", format_bytes(c.workspace_before), format_bytes(c.workspace_after));
}

void print(const TunedClass& c) {
  fmt::print("{:<66} {:>4} {:<12} {:<26} {:>10.3f} {:>6} {}\n", c.name, c.ways, c.standard,
             c.choice == c.standard ? "" : c.choice, c.seconds * 1e3,
             c.choice == c.standard ? "" : fmt::format("{:.2f}", c.ratio), change(c));
  if (!c.wrong.empty())
    fmt::print("  REFUSED, other results than the plain kernel: {}\n", fmt::join(c.wrong, ", "));
  if (!c.fault.empty()) fmt::print("  not measured: {}\n", c.fault);
  std::fflush(stdout);
}

// The sums over all classes, one run of each.
struct Sum {
  size_t classes = 0, faster = 0;
  double before = 0, after = 0;

  void add(const TunedClass& c) {
    ++classes;
    faster += c.choice != c.standard;
    before += c.seconds;
    after += c.seconds / c.ratio;
  }
};

void run(const Settings& settings) {
  if (settings.reset) {
    const bool was_there = forget_tuning(settings.tune.device);
    fmt::print("{}\n", was_there ? "forgotten: the cost model decides again" : "nothing was tuned");
    return;
  }
  const InterruptScope interrupts;
  const std::vector<std::string> products =
      settings.log.empty() ? standard_products(settings) : read_tune_log(settings.log);
  fmt::print("{:<66} {:>4} {:<12} {:<26} {:>10} {:>6} {}\n", "class", "ways", "standard", "choice",
             "ms", "ratio", "workspace");
  Sum sum;
  const size_t kept = tune(settings.tune, products, [&](const TunedClass& c) {
    print(c);
    sum.add(c);
    if (const int signal = InterruptScope::signal())
      throw Interrupted(signal, "[tune] stopped; what was measured is kept");
  });
  if (!settings.tune.measures) {
    fmt::print("{} classes; {} choices are kept\n", sum.classes, kept);
    return;
  }
  fmt::print(
      "{} of {} classes are faster: one run of each took {:.3f} s and takes {:.3f} s; {} "
      "choices are kept\n",
      sum.faster, sum.classes, sum.before, sum.after, kept);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures how this device runs matrix products and convolutions fastest, and keeps "
      "it for later runs. The bits of results stay the same from one tune to the next.");
  Settings settings;
  shared_option(app, "--device", settings.tune.device, "a Vulkan device")->capture_default_str();
  app.add_option(
      "--for", settings.log,
      "a file that a program wrote because of REWIND_TUNE_LOG=FILE: tune for its products "
      "instead of those of ResNet, BERT and an MLP");
  shared_option(app, "--model", settings.model,
                "those of resnet20, resnet50, bert and mlp whose names contain this");
  shared_option(app, "--dtype", settings.dtype, "default: f32 and f16");
  shared_option(app, "--only", settings.tune.only, "classes of products");
  app.add_flag("--quick", settings.tune.quick, "fewer and shorter rounds");
  shared_flag(app, "--dry", settings.dry, "list the classes");
  app.add_flag("--reset", settings.reset, "forget all measurements");
  return run_program(app, argc, argv, [&] {
    settings.tune.measures = !settings.dry;
    run(settings);
  });
}
