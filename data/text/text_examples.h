// Token sequences to train a BERT on.
#pragma once

#include <span>
#include <vector>

#include "sentences.h"
#include "text.h"
#include "tokenizer.h"

namespace rw {

// One sequence of tokens.
struct TextExample {
  std::vector<int32_t> ids;  // with [CLS] and [SEP]
  int64_t second = 0;        // where the second text starts; ids.size() without one
  int32_t label = 0;  // class; for pairs 0: the second text follows the first, 1: it is random
};

// [CLS] text [SEP], filled up to max_length tokens, these included. Cuts fall between words, and no
// token is lost. With `cross_documents`, a sequence goes on with the next document behind a [SEP],
// as RoBERTa's do.
std::vector<TextExample> pack_sequences(std::span<const Document> documents,
                                        const Tokenizer& tokenizer, int64_t max_length = 128,
                                        bool cross_documents = true);

// How pack_pairs() chooses pairs.
struct PairOptions {
  int64_t max_length = 128;        // tokens, [CLS] and [SEP] included
  double short_probability = 0.1;  // of a pair that aims for a random shorter length
  uint64_t seed = 0;               // of lengths and random second texts
};
// [CLS] first [SEP] second [SEP] for next-sentence prediction, as BERT makes them: half of the
// second texts come from another document. It needs at least two documents.
std::vector<TextExample> pack_pairs(std::span<const Document> documents, const Tokenizer& tokenizer,
                                    const PairOptions& options = {});

// [CLS] sentence [SEP], or [CLS] first [SEP] second [SEP] for pairs, cut longest first, with its
// class; 0 if the data have no labels.
std::vector<TextExample> sentence_examples(const SentenceDataset& data, const Tokenizer& tokenizer,
                                           int64_t max_length = 128);

}  // namespace rw
