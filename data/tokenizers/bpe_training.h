// Makes byte-pair tokenizers for your own texts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bpe_parts.h"

namespace rw {

// The options of a tokenizer that is trained.
struct BpeOptions {
  int64_t size = 4096;        // tokens at most; fewer when the texts have no more pairs to merge
  int64_t min_frequency = 2;  // of a pair that becomes a token
  std::string pattern = qwen2_pattern;  // cuts texts into words, now and later
  bool nfc = true;                      // texts are normalised to Unicode's NFC, now and later
  // They have the first ids. The first one is `eos` and `pad`.
  std::vector<std::string> special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
};

// A byte-level tokenizer with the merges that Hugging Face's BpeTrainer finds in the texts, in its
// order (byte-pair encoding, Sennrich et al. 2016; of bytes, Radford et al. 2019): special tokens
// come first, then all 256 bytes, then merges. Bytes that are not UTF-8 are read as U+FFFD. The
// same texts give the same tokens. ValueError if `size` does not hold the special tokens and bytes,
// for special tokens that repeat, and for a text of 2 GiB.
BpeParts train_bpe(std::span<const std::string> texts, const BpeOptions& options = {});

}  // namespace rw
