// The ranges of an optimizer's gradients by parameter, which loss scaling must bring into the range
// of f16.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../base/optimizer.h"
#include "value_range.h"

namespace rw {

// The range of one parameter's gradient.
struct GradientRange {
  std::string name;   // of the parameter
  float scale = 1;    // the loss scale that is in the gradient
  ValueRange stored;  // with the loss scale in it; no elements: there was no gradient
  uint64_t unscaled =
      0;  // elements that are denormal in f16, or less, once the scale is divided out
};

// Measures the gradients of every `every`-th update while it lives, on the device: no step waits.
// It takes 64 bytes per parameter. Denormal means denormal in f16, whatever the gradient's own
// type.
class GradientRanges {
 public:
  // ValueError for 0, RankError for sharded states: no rank has all gradients then.
  explicit GradientRanges(Optimizer& optimizer, uint32_t every = 1);

  // The ranges of the last update that was measured, one per parameter. Waits for the device.
  std::vector<GradientRange> read() const;

 private:
  friend std::vector<GradientRange> gradient_ranges(const Optimizer& optimizer);
  class Rows;
  std::shared_ptr<Rows> rows_;
};

// The ranges of the current gradients, between backward() and step(). Waits for the device.
std::vector<GradientRange> gradient_ranges(const Optimizer& optimizer);

// One line per parameter: the largest and least |g| without and with the loss scale, the shares of
// elements that are 0, that are denormal in f16 with and without the scale, and the number of
// elements that are not finite.
std::string gradient_range_table(const std::vector<GradientRange>& ranges);

}  // namespace rw
