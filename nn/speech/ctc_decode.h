// Decodes the frames of a model that was trained with ctc_loss() into labels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../../core/tensor/tensor.h"

namespace rw {

// The result of a decoder.
struct CtcHypothesis {
  std::vector<int32_t> labels;  // classes, in order
  // Greedy: that of its one way; beam: that of all ways that the beam saw.
  float log_probability;
};

// The likeliest class of each frame, without repetitions and blanks, for each sample. log_probs [T,
// N, C], f32 or f16; `lengths` are the frames of each sample, or empty for all of them. Waits for
// the device. ShapeError, ValueError.
std::vector<CtcHypothesis> ctc_greedy_decode(const Tensor& log_probs,
                                             std::span<const int64_t> lengths = {},
                                             int32_t blank = 0);

// The options of ctc_beam_decode().
struct CtcBeamOptions {
  int32_t blank = 0;  // its class
  int beam = 16;      // prefixes that are kept from frame to frame
  int best = 1;       // hypotheses of each sample, the likeliest first
  float least = -20;  // classes with a smaller log-probability in a frame are skipped
};
// The likeliest label sequences, summed over all alignments of each, by prefix beam search (Hannun
// et al. 2014, without a language model): up to `best` for each sample. Otherwise like
// ctc_greedy_decode().
std::vector<std::vector<CtcHypothesis>> ctc_beam_decode(const Tensor& log_probs,
                                                        std::span<const int64_t> lengths = {},
                                                        const CtcBeamOptions& options = {});

// Returns the insertions, deletions and substitutions that turn `heard` into `said` (Levenshtein
// 1966). Summed over samples and divided by the number of labels that were said, it is the error
// rate.
int64_t edit_distance(std::span<const int32_t> heard, std::span<const int32_t> said);

// The counts of a word error rate.
struct WordErrors {
  int64_t errors = 0, words = 0;  // insertions, deletions and substitutions; words that were said

  // errors / words; without any words, 0 or infinite.
  double rate() const;
  WordErrors& operator+=(const WordErrors& other);
};
// Counts the errors of one text, whose words are separated by spaces.
WordErrors word_errors(std::string_view heard, std::string_view said);

}  // namespace rw
