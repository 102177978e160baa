// Makes vocabularies for your own texts.
#pragma once

#include <span>

#include "text.h"
#include "tokenizer.h"

namespace rw {

// The options of a vocabulary.
struct VocabularyOptions {
  int64_t size = 8192;          // tokens at most; fewer when the text has no more pairs to merge
  int64_t min_frequency = 2;    // of a pair that becomes a token
  int64_t max_alphabet = 1000;  // single characters at most; words with rarer ones are left out
  TokenizerOptions tokenizer = {};  // how texts are cut into words, now and later
};

// Byte-pair merges by frequency (Sennrich et al. 2016) with WordPiece's "##", which is how Hugging
// Face's WordPiece trainer works too; Google never published BERT's. [PAD], [UNK], [CLS], [SEP]
// and [MASK] come first, then single characters, then merges. The same text gives the same tokens.
Vocabulary train_vocabulary(std::span<const Document> documents, const VocabularyOptions& options);

}  // namespace rw
