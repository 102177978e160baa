// Steps that make texts alike before a tokenizer cuts them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// The kinds of steps.
enum class Normalization {
  nfc,       // Unicode's normal forms
  nfd,       // the same
  nfkc,      // the same
  nfkd,      // the same
  replace,   // puts a text in place of the matches of a pattern
  strip,     // removes white space at the ends
  charsmap,  // replaces characters by a table of SentencePiece
};

// A step, NFC unless it says otherwise.
struct NormalizerStep {
  Normalization kind = Normalization::nfc;  // the change that it makes
  // A regular expression in ICU's syntax, or with `literal` a text (replace); the bytes of the
  // table, precompiled_charsmap (charsmap).
  std::string pattern = {};
  std::string content = {};          // replaces matches
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
