// The facts that llama.cpp derives from names and texts of a GGUF file's vocabulary
// (llm_tokenizer_bpe and llama_vocab in its src/llama-vocab.cpp).
#pragma once

#include <string_view>
#include <vector>

namespace rw {

// The patterns that have these names in tokenizer.ggml.pre, and what goes with them. The first name
// is written.
struct GgufPatterns {
  std::vector<std::string_view> names;
  std::vector<const char*> splits;  // as TextSplit::pattern
  bool nfc = false, ignore_merges = false, add_bos = false;
};

const std::vector<GgufPatterns>& gguf_patterns();               // all that are known
const GgufPatterns* find_gguf_patterns(std::string_view name);  // null: none of these

// Tokens with these texts end a generated text, whatever ids a file names.
inline constexpr std::string_view texts_of_ends[] = {"<|eot_id|>",
                                                     "<|im_end|>",
                                                     "<|end|>",
                                                     "<|return|>",
                                                     "<|call|>",
                                                     "<|flush|>",
                                                     "<|calls|>",
                                                     "<end_of_turn>",
                                                     "<|endoftext|>",
                                                     "</s>",
                                                     "<|eom_id|>",
                                                     "<EOT>",
                                                     "_<EOT>",
                                                     "[EOT]",
                                                     "[EOS]",
                                                     "<|end_of_text|>",
                                                     "<eos>",
                                                     "<turn|>",
                                                     "<end_of_utterance>",
                                                     "<|tool_response>",
                                                     "<｜end▁of▁sentence｜>",
                                                     "[e~["};

}  // namespace rw
