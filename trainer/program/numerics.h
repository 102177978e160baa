// The options of loss scaling and of monitors for its numbers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "../../optim/numerics/gradient_ranges.h"
#include "../../optim/numerics/numerics_monitor.h"

namespace CLI {
class App;
}

namespace rw {

// The options --loss-scale, --overflow, --check-numerics and --gradient-ranges.
struct NumericsOptions {
  std::string loss_scale = {};  // empty: the dtype decides
  std::string overflow = "window";
  uint32_t check_numerics = 0;   // updates per one that is monitored; 0: none is
  bool gradient_ranges = false;  // print the range of each gradient at the end

  void add_to(CLI::App& app);            // adds the options
  LossScaler scaler(DType dtype) const;  // throws ValueError
};

// Applies these options to an optimizer, which must outlive it.
class NumericsWatch {
 public:
  NumericsWatch(const NumericsOptions& options, Optimizer& optimizer, DType dtype);

  std::string diagnose() const;  // describes the optimizer's numbers, as far as they were monitored
  void print() const;            // prints what the options ask for

 private:
  Optimizer& optimizer_;
  std::unique_ptr<NumericsMonitor> monitor_;  // null: none is wanted
  std::optional<GradientRanges> ranges_;
};

// Ends training: prints how many updates were made and which share was skipped, with a warning if
// that is large. Throws NumericsError if no update was made, since nobody may take the initial
// weights for trained ones.
void conclude_training(const Optimizer& optimizer, bool quiet);

}  // namespace rw
