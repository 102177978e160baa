// Loss scaling on the command line, and what watches it.
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

// --loss-scale, --overflow, --check-numerics and --gradient-ranges.
struct NumericsOptions {
  std::string loss_scale = {};  // empty: by the dtype
  std::string overflow = "window";
  uint32_t check_numerics = 0;   // one update in so many is watched; 0: none
  bool gradient_ranges = false;  // print the range of each gradient at the end

  void add_to(CLI::App& app);            // the options
  LossScaler scaler(DType dtype) const;  // ValueError
};

// What these options do to an optimizer, which must outlive it.
class NumericsWatch {
 public:
  NumericsWatch(const NumericsOptions& options, Optimizer& optimizer, DType dtype);

  std::string diagnose() const;  // of the optimizer, with what was seen
  void print() const;            // what the options asked for

 private:
  Optimizer& optimizer_;
  std::unique_ptr<NumericsMonitor> monitor_;  // null: none is wanted
  std::optional<GradientRanges> ranges_;
};

// The end of training: how many updates were made, and which share was skipped, with a warning
// where that is large. NumericsError where none was made: the weights are those of the beginning,
// and nobody may take them for trained ones.
void conclude_training(const Optimizer& optimizer, bool quiet);

}  // namespace rw
