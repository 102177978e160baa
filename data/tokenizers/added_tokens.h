// Finds tokens that are not made of merges ("<|im_end|>") in texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rw {

// Some texts with an id each, as a trie of their bytes.
class TokenTrie {
 public:
  // An empty text is never found. Of equal texts, the last one counts.
  void add(std::string_view text, int32_t id);
  // Calls found(id, end) for each text that stands at `begin`, the shortest first.
  template <class Found>
  void each_at(std::string_view text, size_t begin, const Found& found) const {
    size_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto next = next_.find(edge(node, text[at]));
      if (next == next_.end()) return;
      node = next->second;
      if (ids_[node] >= 0) found(ids_[node], at + 1);
    }
  }

 private:
  static uint64_t edge(size_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
  }

  std::vector<int32_t> ids_ = {-1};            // of each node; -1: no text ends there
  std::unordered_map<uint64_t, size_t> next_;  // the node behind an edge
};

// Texts that are looked for everywhere.
class AddedTokens {
 public:
  // An empty text is never found.
  void add(std::string_view text, int32_t id);

  // A text that was found: its id, and its bytes [begin, end) of the text that was searched.
  struct Match {
    int32_t id;
    size_t begin, end;
  };
  // The first match from `begin` on, the longest of those that begin there; {-1, size, size} if
  // there is none.
  Match find(std::string_view text, size_t begin) const;

 private:
  TokenTrie texts_;
  std::array<bool, 256> begins_{};  // bytes with which a text begins
};

}  // namespace rw
