// The steps of a tokenizer.json around its model.
#pragma once

#include <nlohmann/json.hpp>

#include <string_view>
#include <utility>

#include "bpe_parts.h"

namespace rw {

// The names in tokenizer.json of normalizers, and of what becomes of the matches of a split.
inline constexpr std::pair<std::string_view, Normalization> normalizer_names[] = {
    {"NFC", Normalization::nfc},
    {"NFD", Normalization::nfd},
    {"NFKC", Normalization::nfkc},
    {"NFKD", Normalization::nfkd},
    {"Lowercase", Normalization::lowercase},
    {"StripAccents", Normalization::strip_accents},
    {"Nmt", Normalization::nmt},
    {"Replace", Normalization::replace},
    {"Prepend", Normalization::prepend},
    {"Strip", Normalization::strip},
    {"Precompiled", Normalization::charsmap},
    {"Precompiled", Normalization::charsmap_longest},  // which files cannot tell from the other
    {"BertNormalizer", Normalization::bert_clean},
    {"BertNormalizer", Normalization::bert_ideographs},
    {"BertNormalizer", Normalization::bert_accents}};
inline constexpr std::pair<std::string_view, SplitBehavior> split_behavior_names[] = {
    {"Isolated", SplitBehavior::isolated},
    {"Removed", SplitBehavior::removed},
    {"MergedWithPrevious", SplitBehavior::merged_with_previous},
    {"MergedWithNext", SplitBehavior::merged_with_next}};

// The steps make words of GPT-2's characters for bytes, or of characters with U+2581 for spaces.
// Perhaps they do neither.
struct WordKinds {
  bool bytes = false, space_marks = false;
};

// Reads the normalizer, the pre-tokenizer, the post-processor and the decoder of a whole file.
// FileError or nlohmann's error for steps that are malformed or not known here.
WordKinds read_bpe_steps(const nlohmann::json& file, BpeParts& parts);

}  // namespace rw
