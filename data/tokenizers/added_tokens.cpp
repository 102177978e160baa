#include "data/tokenizers/added_tokens.h"

namespace rw {

void TokenTrie::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  size_t node = 0;
  for (const char byte : text) {
    const auto [at, is_new] = next_.emplace(edge(node, byte), ids_.size());
    if (is_new) ids_.push_back(-1);
    node = at->second;
  }
  ids_[node] = id;
}

void AddedTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  begins_[static_cast<uint8_t>(text.front())] = true;
  texts_.add(text, id);
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t begin) const {
  for (; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    Match best{-1, begin, begin};
    texts_.each_at(text, begin, [&](int32_t id, size_t end) { best = {id, begin, end}; });
    if (best.id >= 0) return best;
  }
  return {-1, text.size(), text.size()};
}

}  // namespace rw
