// Continues texts by a language model, as they come.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "../../data/tokenizers/bpe_tokenizer.h"
#include "../../models/causal_lm.h"

namespace rw {

// Passes a text on until the first of some strings. It holds back an end that could be the
// beginning of one.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);  // ValueError for an empty one

  // The text that is certain with this piece. Nothing once a string has come.
  std::string push(std::string_view piece);
  // The text that was held back, at the end.
  std::string finish();
  bool found() const { return found_; }  // one of the strings has come

 private:
  std::vector<std::string> strings_;
  std::string pending_;
  bool found_ = false;
};

// How a text is continued, besides what CausalLM::generate() does.
struct TextOptions {
  GenerateOptions generate = {};         // its on_tokens is replaced
  std::vector<std::string> stop = {};    // strings that end the text; they are not part of it
  std::vector<int32_t> end_tokens = {};  // tokens that end it, besides those of the tokenizer
  // Receives the text as it comes, in whole characters.
  std::function<void(std::string_view)> on_text = {};
};

// A continuation, and how long it took on this machine.
struct GeneratedText {
  std::string text;           // without the prompt
  int64_t prompt_tokens = 0;  // that the model read
  int64_t tokens = 0;         // drawn, with the one that ended the text
  double first_seconds = 0;   // until the first token, with reading the prompt
  double seconds = 0;         // for all the others
  bool is_complete = false;   // a token or a string ended it, not the number of tokens
};

// Returns a text whose lines after the first begin with two spaces.
std::string indented(std::string text);

// Continues a prompt of tokens until the model ends its text, one of the strings comes, there are
// max_new_tokens, or the model has no more positions. ValueError for an empty prompt, and for one
// that fills all positions; otherwise as CausalLM::generate().
GeneratedText continue_text(CausalLM& model, const BpeTokenizer& tokenizer,
                            std::span<const int32_t> prompt, const TextOptions& options);

}  // namespace rw
