// Steps that make texts alike before a tokenizer cuts them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// The kinds of steps, as the library tokenizers has them (the last three are parts of BERT's). It
// knows the characters of Unicode 9 in normal forms and as marks, and those of Unicode 8 in BERT's
// steps; later ones stay as they are.
enum class Normalization {
  nfc,               // Unicode's normal forms
  nfd,               // the same
  nfkc,              // the same
  nfkd,              // the same
  lowercase,         // each character by itself: no sigma is a final one
  strip_accents,     // removes marks, which are characters of their own in nfd and nfkd
  nmt,               // removes control characters, and makes odd white space spaces
  replace,           // puts a text in place of the matches of a pattern
  prepend,           // puts a text before one that is not empty
  strip,             // removes white space at the ends
  charsmap,          // replaces characters by a table of SentencePiece, as tokenizers does it
  charsmap_longest,  // the same as SentencePiece and llama.cpp do it: the longest match counts
  bert_clean,        // removes control and format characters, and makes white space spaces
  bert_ideographs,   // puts spaces around ideographs
  bert_accents,      // removes non-spacing marks behind nfd
};

// A step, NFC unless it says otherwise.
struct NormalizerStep {
  Normalization kind = Normalization::nfc;  // the change that it makes
  // A regular expression in ICU's syntax, or with `literal` a text (replace); the bytes of the
  // table, precompiled_charsmap (both of charsmap).
  std::string pattern = {};
  std::string content = {};          // replaces matches, or is put before the text
  bool literal = false;              // as above
  bool left = false, right = false;  // which ends are stripped

  bool operator==(const NormalizerStep&) const = default;
};

// Steps that are ready to run, from any number of threads.
class TextNormalizer {
 public:
  // FileError for a pattern that ICU does not compile, and for a table that is none.
  explicit TextNormalizer(const std::vector<NormalizerStep>& steps);
  // The text (UTF-8, less than 2 GiB) behind all steps.
  std::string normalised(std::string_view text) const;

 private:
  std::vector<std::function<std::string(std::string_view)>> steps_;
};

}  // namespace rw
