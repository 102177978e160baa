#include "trainer/program/numerics.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>

#include "optim/accumulation/accumulate.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

namespace rw {

void NumericsOptions::add_to(CLI::App& app) {
  app.add_option(
      "--loss-scale", loss_scale,
      "the loss scale: none, fixed:N, dynamic[:INITIAL[:GROWTH[:BACKOFF[:INTERVAL]]]] as PyTorch's "
      "GradScaler, or tensorflow[:INITIAL[:INCR_EVERY[:DECR_EVERY[:INCR_RATIO"
      "[:DECR_RATIO]]]]] (default: dynamic in f16, else none)");
  app.add_option(
         "--overflow", overflow,
         "what a gradient that overflows voids: the window of --accumulate, or only its own "
         "micro-batch")
      ->check(CLI::IsMember({"window", "micro-batch"}))
      ->capture_default_str();
  app.add_option("--check-numerics", check_numerics,
                 "watch the values of every N-th update, and name the first op, tensor and step "
                 "that overflowed or became denormal");
  app.add_flag("--gradient-ranges", gradient_ranges,
               "print the ranges of the last update's gradients, by parameter (or of the last one "
               "that --check-numerics watches)");
}

LossScaler NumericsOptions::scaler(DType dtype) const {
  return loss_scale.empty() ? default_scaler(dtype) : parse_loss_scale(loss_scale);
}

NumericsWatch::NumericsWatch(const NumericsOptions& options, Optimizer& optimizer, DType dtype)
    : optimizer_(optimizer) {
  optimizer.set_scaler(options.scaler(dtype));
  if (options.overflow == "micro-batch") {
    auto* windows = dynamic_cast<Accumulate*>(&optimizer);
    check(windows, "options", "--overflow micro-batch is for --accumulate, without --fused-update");
    windows->set_overflow(Accumulate::Overflow::voids_micro_batch);
  }
  const uint32_t every = std::max(1u, options.check_numerics);
  if (options.check_numerics > 0)
    monitor_ = std::make_unique<NumericsMonitor>(optimizer, MonitorOptions{.every = every});
  check(!options.gradient_ranges || !optimizer.parameters().shard(), "options",
        "--gradient-ranges shows all gradients, of which each rank has a part with --shard: leave "
        "out one of them");
  if (options.gradient_ranges) ranges_.emplace(optimizer, every);
}

std::string NumericsWatch::diagnose() const {
  return monitor_ ? rw::diagnose(optimizer_, monitor_->report()) : optimizer_.diagnose();
}

void NumericsWatch::print() const {
  if (monitor_) fmt::print("\n{}", diagnose());
  if (ranges_) fmt::print("\n{}", gradient_range_table(ranges_->read()));
}

void conclude_training(const Optimizer& optimizer, bool quiet) {
  const uint64_t made = optimizer.updates(), skipped = optimizer.skipped();
  check<DeviceError>(made + skipped > 0, "train",
                     "the device must count the updates that it makes, but has counted none: it "
                     "computes nothing. Choose another device or driver");
  check<NumericsError>(
      made > 0, "train",
      "at least one update must be made, got none: all {} were skipped because of "
      "overflows; nothing is saved. Choose another --loss-scale{} or --dtype bf16, which "
      "has the range of f32 ({})",
      skipped, has_option("--lr") ? ", a lower --lr" : "", optimizer.diagnose());
  const double share = static_cast<double>(skipped) / static_cast<double>(made + skipped);
  constexpr double large = 0.1;
  if (share > large)
    warn(fmt::format("{:.1f} % of the updates were skipped because of overflows: {}", 100 * share,
                     optimizer.diagnose()));
  if (!quiet)
    fmt::print("{} updates, {} skipped because of overflows ({:.1f} %)\n", made, skipped,
               100 * share);
}

}  // namespace rw
