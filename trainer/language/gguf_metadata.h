// Tokenizers in the metadata of GGUF files: the keys tokenizer.ggml.* and tokenizer.chat_template.
#pragma once

#include "../../data/tokenizers/bpe_parts.h"
#include "../../io/formats/gguf.h"

namespace rw {

// The parts of the tokenizer that a file comes with. FileError if it has none, or none that is
// known.
BpeParts tokenizer_of(const GgufFile& file);
// The metadata that llama.cpp reads for a model with `vocabulary` rows of embeddings: a row without
// a token gets one that is not used, and a token without a row is left out. ValueError for a
// tokenizer that GGUF has no form for.
GgufMetadata tokenizer_metadata(const BpeParts& parts, int64_t vocabulary);

}  // namespace rw
