// The plain parts of a byte-pair encoding or a unigram model, as tokenizer.json and GGUF files have
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/text_normalizer.h"

namespace rw {

// The use of a token. `normal` ones are made by merges, and so are `unused` ones, which no text of
// the training had. `unknown` and `control` are special: a text has them only where that is
// allowed, and decoding may leave them out. `user_defined` ones are found in every text before it
// is cut into words, `byte` ones ("<0x0A>") stand for bytes of characters without a token. The
// numbers are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

// Whether decoding may skip tokens of this type.
inline bool is_special(TokenType type) {
  return type == TokenType::unknown || type == TokenType::control;
}

// Whether they are found in texts as they are, before merges.
inline bool is_added(TokenType type) {
  return is_special(type) || type == TokenType::user_defined;
}

// A token of a `type`, by its `text` as files write it: in GPT-2's alphabet of bytes, where that is
// used, or with U+2581 for spaces; tokens that are not part of words as they are.
struct BpeToken {
  std::string text;
  TokenType type = TokenType::normal;
  bool normalized = false;  // found in the normalised text only
  // White space beside an added token belongs to it; and it is found only where no letter, digit or
  // underscore is beside it.
  bool lstrip = false, rstrip = false, single_word = false;

  // Whether no token has this id: ids may have gaps.
  bool is_gap() const { return text.empty() && type == TokenType::unused; }
};

// A pattern's matches become pieces of their own (isolated), vanish (removed), or join the text
// before them (merged_with_previous) or behind them (merged_with_next).
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next };

// A step that cuts pieces of a text at the matches of a pattern, or at what lies between them
// (`invert`), and treats these by its `behavior`.
struct TextSplit {
  std::string pattern;  // a regular expression in ICU's syntax
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;   // as above
  bool literal = false;  // the pattern is no regular expression
};

// Where a space is put before the parts of a text between added tokens when it is cut into words:
// nowhere (none), before each that does not begin with a space (unless_space), or only before the
// first one if it does not (first_unless_space). Normalizers may put others there before.
enum class SpacePrefix { none, unless_space, first_unless_space };

// Decoding leaves out no spaces (none), one with which the text begins, or all of the first token,
// as far as they are U+2581 there.
enum class SpaceStrip { none, one, all };

// Everything that a BpeTokenizer is made of.
struct BpeParts {
  std::vector<BpeToken> tokens;                     // the index is the id
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids of both halves; earlier ones come first
  // Words are bytes in GPT-2's alphabet (Radford et al. 2019). False: they are characters with
  // U+2581 for spaces, and the bytes of those without a token (SentencePiece, Llama 2, Gemma).
  bool byte_level = true;
  // A unigram model (Kudo 2018) has the logarithms of the probabilities of the first tokens here,
  // and no merges. -infinity: the token is not found in texts, unless as an added one.
  std::vector<double> scores;
  std::optional<int32_t> unknown;  // of a unigram model: the token of characters without one
  bool byte_fallback = false;      // of a unigram model: their bytes are tokens instead
  std::vector<NormalizerStep> normalizers;  // change texts first, one after the other
  std::vector<TextSplit> early_splits;      // cut texts before spaces become U+2581
  bool metaspace = false;  // spaces become U+2581 here, unless normalizers have made them so before
  SpacePrefix space_prefix = SpacePrefix::none;
  std::vector<TextSplit> splits;        // cut texts into words, one after the other
  bool ignore_merges = false;           // a word that is a token is this token, whatever merges say
  std::optional<int32_t> bos, pad;      // ids of the tokens that begin texts, and that fill batches
  std::vector<int32_t> eos;             // ids that end a generated text
  std::optional<int32_t> eos_token;     // the id that ends documents; none: the first of `eos`
  bool add_bos = false;                 // the model expects texts to begin with `bos`
  std::vector<int32_t> prefix;          // ids that it expects between `bos` and a text
  std::vector<int32_t> suffix;          // ids with which it expects texts to end
  SpaceStrip strip = SpaceStrip::none;  // by decoding
  std::string chat_template;            // Jinja, or empty
};

// Pieces of SentencePiece have this character in place of a blank.
inline constexpr std::string_view space_mark = "\u2581";

// The normalizer that puts it there.
inline const NormalizerStep mark_spaces = {.kind = Normalization::replace,
                                           .pattern = " ",
                                           .content = std::string(space_mark),
                                           .literal = true};

// The regular expressions that cut texts into words: GPT-2's, Llama 3's and Qwen2's.
inline constexpr const char* gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace rw
