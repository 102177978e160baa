// Masking for masked language models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/random.h"
#include "vocabulary.h"

namespace rw {

// Chooses the tokens that are masked, and how. The defaults are BERT's.
struct MaskingOptions {
  double probability = 0.15;    // of the tokens are to be predicted,
  double mask = 0.8;            // this share of them shown as [MASK],
  double random = 0.1;          // this share as a random token, the others as they are
  bool whole_words = false;     // all pieces of a word or none
  int64_t max_predictions = 0;  // per sequence; 0: no limit
};

void check_masking(const MaskingOptions& options);  // ValueError where shares are none

// Masks `ids` in place and returns the original ids at the places to predict, and -100 elsewhere.
// Special tokens are never chosen; at least one token is, unless every word has more pieces than
// wanted.
std::vector<int32_t> mask_tokens(std::span<int32_t> ids, const Vocabulary& vocabulary,
                                 const MaskingOptions& options, DataRandom random);

}  // namespace rw
