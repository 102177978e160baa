// Byte-pair tokenizers of language models (Sennrich et al. 2016), token for token those of Hugging
// Face's tokenizers: byte-level as GPT-2, Llama 3 and Qwen have them, and characters with byte
// fallback as Llama 2 and Gemma do. Also unigram models (Kudo 2018), as T5 and XLM-R have them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bpe_parts.h"

namespace rw {

struct BpeModel;

// Texts as tokens, and back. It never changes: copies share what they know, and any number of
// threads may use one.
class BpeTokenizer {
 public:
  // FileError if the parts contradict each other: names twice, ids beyond, merges without a token.
  explicit BpeTokenizer(BpeParts parts);
  // Reads a tokenizer.json, or a folder that has one, and what lies beside it for added tokens,
  // tokens with a meaning and the chat template: tokenizer_config.json, special_tokens_map.json,
  // generation_config.json, config.json, chat_template.jinja, in transformers' order of precedence.
  // FileError names what is malformed or not known here.
  static BpeTokenizer load(const std::filesystem::path& tokenizer_json_or_folder);
  // Writes tokenizer.json and tokenizer_config.json, which transformers' AutoTokenizer opens.
  void save(const std::filesystem::path& folder) const;

  // The tokens of a text of less than 2 GiB. Bytes that are not UTF-8 are read as U+FFFD, one for
  // each part that could have begun a character, as Python's errors='replace' does. If not
  // `special_tokens`, a text's "<|im_end|>" is punctuation and letters, which is right for texts of
  // strangers. With `bos`, the tokens that begin texts come first where the model expects some, and
  // with `eos` those that end them come last; without `eos` it is as `bos`. Texts that a model
  // continues have no end. ValueError for a character that is no token, if none is for unknown
  // ones.
  std::vector<int32_t> encode(std::string_view text, bool special_tokens, bool bos, bool eos) const;
  std::vector<int32_t> encode(std::string_view text, bool special_tokens = true,
                              bool bos = false) const {
    return encode(text, special_tokens, bos, bos);
  }

  // The bytes of tokens, which need not be UTF-8 if they end within a character. Spaces that
  // encode() puts first are left out, and so are special tokens if `skip_special`. ValueError for
  // ids outside [0, size()).
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Tokens, and ids without one: one more than the highest id.
  int64_t size() const { return static_cast<int64_t>(parts().tokens.size()); }
  const BpeParts& parts() const;  // as given to the constructor
  // The token as files write it; empty where no token has the id. ValueError for an id outside
  // [0, size()).
  const std::string& token(int64_t id) const;
  // The id of a token as files write it.
  std::optional<int32_t> id(std::string_view token) const;
  // The bytes that it stands for. ValueError as above.
  const std::string& bytes(int64_t id) const;
  // Whether decoding may skip it: <|im_end|>, </s>.
  bool is_special(int64_t id) const;

  // The token that begins texts, where there is one.
  std::optional<int32_t> bos() const { return parts().bos; }
  // The token that ends documents, which need not be among those that end a generated text.
  std::optional<int32_t> eos() const {
    if (parts().eos_token || parts().eos.empty()) return parts().eos_token;
    return parts().eos.front();
  }
  // Whether a token ends a generated text.
  bool is_eos(int32_t id) const;

 private:
  void check_id(int64_t id) const;

  std::shared_ptr<const BpeModel> model_;
};

// The text of tokens that come one by one, in whole characters: a token may end within one. It is
// that of decode() with U+FFFD for what is not UTF-8, but a leading space stays, since other text
// may precede it.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(BpeTokenizer tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  // The text that is complete with this token, perhaps none. ValueError for an unknown id.
  std::string push(int32_t id);
  // U+FFFD if a character has begun and never came, else nothing.
  std::string finish();

 private:
  BpeTokenizer tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of a character that is not complete
};

}  // namespace rw
