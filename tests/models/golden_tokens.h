// The batch that the goldens of BERT and GPT-2 have in common (make_bert_goldens.py,
// make_gpt_goldens.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../fixtures/hashed.h"

namespace rw::test {

inline constexpr int64_t golden_batch = 3, golden_length = 12, golden_vocab = 50;

inline std::vector<int32_t> hashed_tokens(const std::string& name) {
  std::vector<int32_t> tokens;
  for (const float v : hashed(name, golden_batch * golden_length))
    tokens.push_back(static_cast<int32_t>((v + 1) * (golden_vocab / 2)));
  return tokens;
}

}  // namespace rw::test
