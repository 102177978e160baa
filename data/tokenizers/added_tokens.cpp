#include "data/tokenizers/added_tokens.h"

namespace rw {

void AddedTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  begins_[static_cast<uint8_t>(text.front())] = true;
  size_t node = 0;
  for (const char byte : text) {
    const auto [at, is_new] = next_.emplace(edge(node, byte), ids_.size());
    if (is_new) ids_.push_back(-1);
    node = at->second;
  }
  ids_[node] = id;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t begin) const {
  for (; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    Match best{-1, begin, begin};
    size_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto found = next_.find(edge(node, text[at]));
      if (found == next_.end()) break;
      node = found->second;
      if (ids_[node] >= 0) best = {ids_[node], begin, at + 1};
    }
    if (best.id >= 0) return best;
  }
  return {-1, text.size(), text.size()};
}

}  // namespace rw
