// The steps of a tokenizer.json around its model.
#pragma once

#include <nlohmann/json.hpp>

#include "bpe_parts.h"

namespace rw {

// The steps make words of GPT-2's characters for bytes, or of characters with U+2581 for spaces.
// Perhaps they do neither.
struct WordKinds {
  bool bytes = false, space_marks = false;
};

// Reads the normalizer, the pre-tokenizer, the post-processor and the decoder of a whole file.
// FileError or nlohmann's error for steps that are malformed or not known here.
WordKinds read_bpe_steps(const nlohmann::json& file, BpeParts& parts);

}  // namespace rw
