// The most likely classes of a sample.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace rw {

// A class and its probability.
struct Ranked {
  size_t index;        // of the class
  double probability;  // from a softmax
};
// Returns the `most` likeliest classes by their scores (logits), best first. Throws NumericsError,
// with `op` in its message, if a score is not finite.
std::vector<Ranked> best_of(std::span<const float> scores, size_t most, std::string_view op);

}  // namespace rw
