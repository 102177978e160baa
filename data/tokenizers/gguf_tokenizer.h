// Tokenizers as GGUF files have them, in metadata named tokenizer.ggml.* (ggml's docs/gguf.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bpe_parts.h"

namespace rw {

// The metadata, by its names. Bytes ("gpt2") have `merges`, "a b" each; SentencePiece has `scores`,
// be it byte-pair encoding ("llama") or a unigram model ("t5").
struct GgufTokenizer {
  std::string model;                // "gpt2", "llama" or "t5"
  std::string pre = "default";      // the name of the patterns that cut words, if "gpt2"
  std::vector<std::string> tokens;  // by id
  std::vector<int32_t> token_type;  // TokenType, by id; empty: all are normal
  std::vector<std::string> merges;  // earlier ones come first
  // By id: merges to tokens of higher scores come first; in a unigram model, the logarithms of
  // probabilities.
  std::vector<float> scores;
  // Ids of the tokens that begin texts, end texts, turns and messages, fill batches, and stand for
  // characters without one.
  std::optional<int32_t> bos_token_id, eos_token_id, eot_token_id, eom_token_id, padding_token_id,
      unknown_token_id;
  // All that end a generated text; empty: the three above and, as in llama.cpp, which does not know
  // this name, tokens with texts such as <|im_end|>.
  std::vector<int32_t> eos_token_ids;
  // None: as llama.cpp does it for the model and patterns.
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix;
  // If "t5": runs of spaces become one, and none stays at the ends; spaces become U+2581; the bytes
  // of SentencePiece's table of characters, or nothing.
  bool remove_extra_whitespaces = false, escape_whitespaces = true;
  std::string precompiled_charsmap;
  std::string chat_template;  // Jinja, or empty
};

// The parts of a BpeTokenizer that encodes as llama.cpp does, and where that differs from Hugging
// Face's tokenizer of the same model, as that: Qwen's normalises to NFC. FileError for models and
// patterns that are not known here, and for merges and types that contradict the tokens.
BpeParts from_gguf(const GgufTokenizer& metadata);

// The metadata of a tokenizer. ValueError where GGUF has no form for it.
GgufTokenizer to_gguf(const BpeParts& parts);

}  // namespace rw
