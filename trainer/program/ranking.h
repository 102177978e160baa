// What a classifier makes of a sample, for its user.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace rw {

// A class, and what the model gives it.
struct Ranked {
  size_t index;        // of the class
  double probability;  // by softmax
};
// The `most` likeliest of some scores (logits), best first. Throws NumericsError, from `op`, where
// one is not finite.
std::vector<Ranked> best_of(std::span<const float> scores, size_t most, std::string_view op);

}  // namespace rw
