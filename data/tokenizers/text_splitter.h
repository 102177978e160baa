// Cuts texts into words by the regular expressions of a tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bpe_parts.h"

namespace rw {

// The version of Unicode whose letters, digits and marks patterns know: "15.0".
std::string unicode_of_patterns();

// The compiled steps of a tokenizer. A copy is for one thread at a time.
class TextSplitter {
 public:
  // FileError for a pattern that ICU does not compile.
  explicit TextSplitter(const std::vector<TextSplit>& steps);
  TextSplitter(const TextSplitter& other);
  ~TextSplitter();

  // The pieces of a text (UTF-8, less than 2 GiB) behind all steps, in order; views of it, which
  // the next call overwrites. ValueError where a match takes more memory than ICU allows.
  const std::vector<std::string_view>& split(std::string_view text);

 private:
  struct Step;

  void apply(const Step& step, std::string_view text);

  std::vector<Step> steps_;
  std::vector<std::string_view> pieces_, next_;
};

}  // namespace rw
