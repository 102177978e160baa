// The form of goldens/bpe.inc and goldens/unigram.inc.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../fixtures/temporary_folder.h"

namespace rw {

inline const std::vector<int32_t> same = {-1};  // stands for the ids

struct BpeResult {
  // plain: special tokens are text; around: with the tokens that the file puts around a text.
  std::vector<int32_t> ids, plain, around;
  std::string_view text, words;  // the decoded `ids`; words: without special tokens

  const std::vector<int32_t>& of(const std::vector<int32_t>& row) const {
    return row == same ? ids : row;
  }
};

struct BpeGolden {
  std::string_view name;
  int base;
  std::string_view patch;
  std::vector<BpeResult> results;  // of each text
};

// The tokenizer.json of a golden: one of the bases with its patch.
inline nlohmann::json golden_json(std::span<const std::string_view> bases,
                                  const BpeGolden& golden) {
  nlohmann::json whole = nlohmann::json::parse(bases[static_cast<size_t>(golden.base)]);
  whole.merge_patch(nlohmann::json::parse(golden.patch));
  return whole;
}

}  // namespace rw
