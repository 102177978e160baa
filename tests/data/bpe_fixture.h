// The form of goldens/bpe.inc.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "../fixtures/temporary_folder.h"

namespace rw {

struct BpeResult {
  std::vector<int32_t> ids, plain;  // plain: special tokens are text
  std::string_view text, words;     // the decoded `ids`; words: without special tokens
};

// The form of goldens/unigram.inc. `around`: with the tokens that the file puts around a text.
struct UnigramResult {
  std::vector<int32_t> ids, plain, around;
  std::string_view text, words;
};

struct UnigramGolden {
  std::string_view name;
  int base;
  std::string_view patch;
  std::vector<UnigramResult> results;
};

struct BpeGolden {
  std::string_view name;
  int base;
  std::string_view patch;
  std::vector<BpeResult> results;  // of each text
};

// The tokenizer.json of a golden: one of the bases with its patch.
template <class Golden>
nlohmann::json golden_json(std::span<const std::string_view> bases, const Golden& golden) {
  nlohmann::json whole = nlohmann::json::parse(bases[static_cast<size_t>(golden.base)]);
  whole.merge_patch(nlohmann::json::parse(golden.patch));
  return whole;
}

}  // namespace rw
