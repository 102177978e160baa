#include "trainer/program/ranking.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace rw {

std::vector<std::pair<size_t, double>> best_of(std::span<const float> scores, size_t most,
                                               std::string_view op) {
  check<NumericsError>(
      std::ranges::all_of(scores, [](float v) { return std::isfinite(v); }), op,
      "the model's scores must be finite, got others: f16 may lack room for them, which --dtype "
      "bf16 has, or the weights are damaged");
  const float largest = scores.empty() ? 0 : std::ranges::max(scores);
  double total = 0;
  std::vector<std::pair<size_t, double>> ranked;
  for (size_t i = 0; i < scores.size(); ++i) {
    ranked.emplace_back(i, std::exp(double{scores[i]} - largest));
    total += ranked.back().second;
  }
  const auto middle = ranked.begin() + static_cast<ptrdiff_t>(std::min(most, ranked.size()));
  std::ranges::partial_sort(ranked, middle, std::greater(), &std::pair<size_t, double>::second);
  ranked.erase(middle, ranked.end());
  for (auto& [index, probability] : ranked) probability /= total;
  return ranked;
}

}  // namespace rw
