// The most likely classes of a sample.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace rw {

// Returns the `most` likeliest classes by their scores (logits), best first, each with its
// probability from a softmax. Throws NumericsError, with `op` in its message, if a score is not
// finite.
std::vector<std::pair<size_t, double>> best_of(std::span<const float> scores, size_t most,
                                               std::string_view op);

}  // namespace rw
