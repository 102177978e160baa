#include "data/text/mlm.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace rw {

namespace {

// Tokens that are masked together: one, or the pieces of a word, as [first, first + count).
struct Unit {
  size_t first, count;
};

std::vector<Unit> units_of(std::span<const int32_t> ids, const Vocabulary& vocabulary,
                           bool whole_words) {
  std::vector<Unit> units;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (vocabulary.is_special(ids[i])) continue;
    const bool joins = whole_words && vocabulary.continues(ids[i]) && !units.empty() &&
                       units.back().first + units.back().count == i;
    if (joins) {
      ++units.back().count;
    } else {
      units.push_back({i, 1});
    }
  }
  return units;
}

}  // namespace

void check_masking(const MaskingOptions& options) {
  check(options.probability > 0 && options.probability <= 1, "mask_tokens",
        "probability must be in (0, 1], got {}", options.probability);
  check(options.mask >= 0 && options.random >= 0 && options.mask + options.random <= 1,
        "mask_tokens", "mask and random must be shares of 1 together, got {} and {}", options.mask,
        options.random);
  check(options.max_predictions >= 0, "mask_tokens", "max_predictions must not be negative, got {}",
        options.max_predictions);
}

std::vector<int32_t> mask_tokens(std::span<int32_t> ids, const Vocabulary& vocabulary,
                                 const MaskingOptions& options, DataRandom random) {
  check_masking(options);
  std::vector<int32_t> labels(ids.size(), -100);
  auto units = units_of(ids, vocabulary, options.whole_words);
  for (size_t i = units.size(); i > 1; --i) std::swap(units[i - 1], units[random.below(i)]);

  // This counts as BERT does: a share of all tokens, special ones included.
  auto wanted =
      std::max<int64_t>(1, std::llround(static_cast<double>(ids.size()) * options.probability));
  if (options.max_predictions > 0) wanted = std::min(wanted, options.max_predictions);
  for (const Unit& unit : units) {
    if (static_cast<int64_t>(unit.count) > wanted) continue;  // a shorter word may still fit
    wanted -= static_cast<int64_t>(unit.count);
    for (size_t i = unit.first; i < unit.first + unit.count; ++i) {
      labels[i] = ids[i];
      const double drawn = random.uniform(0, 1);
      if (drawn < options.mask) {
        ids[i] = vocabulary.mask;
      } else if (drawn < options.mask + options.random) {
        ids[i] = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocabulary.size())));
      }
    }
    if (wanted == 0) break;
  }
  return labels;
}

}  // namespace rw
