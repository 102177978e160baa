// BERT's tokenizer, token for token that of google-research/bert: words of cleaned, lower-cased,
// accent-free text, each cut into the longest pieces the vocabulary has.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../base/unicode.h"
#include "vocabulary.h"

namespace rw {

// How texts are cut into tokens.
struct TokenizerOptions {
  bool lower_case = true;      // and strip accents, as the uncased models do
  int max_input_chars = 200;   // longer words are [UNK]; Hugging Face takes 100
  bool special_tokens = true;  // "[MASK]" and the like in a text are those tokens, not punctuation
};

// A token, by its `id`, and the bytes [begin, end) of the text it stands for.
struct Token {
  int32_t id;
  size_t begin, end;
};

// The text of a pair that loses tokens: longest_first (again and again the longer one), only_first,
// or only_second.
enum class Truncation { longest_first, only_first, only_second };

// The input of a model: [CLS] first [SEP], or [CLS] first [SEP] second [SEP].
struct Encoding {
  std::vector<int32_t> ids;                        // of tokens and specials
  std::vector<int32_t> token_types;                // 1 for the second text and its [SEP]
  std::vector<std::pair<size_t, size_t>> offsets;  // bytes of the own text; {0, 0} for specials
};

// A vocabulary, and how texts are cut into its tokens. Any number of threads may use one.
class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary, TokenizerOptions options = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }  // as given to the constructor
  const TokenizerOptions& options() const { return options_; }  // the same

  // The tokens of a text alone. Bytes that are not UTF-8 are left out.
  std::vector<Token> tokenize(std::string_view text) const;
  // Their ids.
  std::vector<int32_t> ids(std::string_view text) const;

  // At most `max_length` tokens, including special ones; the rest of the text is cut off.
  // ValueError if not even the special ones fit.
  Encoding encode(std::string_view text, int64_t max_length = 512) const;
  Encoding encode_pair(std::string_view first, std::string_view second, int64_t max_length = 512,
                       Truncation truncation = Truncation::longest_first) const;

  // Words joined by spaces. ValueError for ids that the vocabulary does not have.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

 private:
  void append_pieces(std::span<const Character> word, size_t base, std::vector<Token>& out) const;
  void append_words(std::string_view text, size_t base, std::vector<Token>& out) const;

  Vocabulary vocabulary_;
  TokenizerOptions options_;
};

// Visits the words that are cut into pieces; punctuation and ideographs are words of one character.
void for_each_word(std::string_view text, bool lower_case,
                   const std::function<void(std::span<const Character>)>& visit);

// Cuts tokens from the ends until `first` and `second` have at most `total` together.
void truncate_pair(std::vector<Token>& first, std::vector<Token>& second, size_t total,
                   Truncation truncation);

}  // namespace rw
