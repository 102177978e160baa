// SentencePiece's tables of what stands in place of characters (precompiled_charsmap).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// A table as sentencepiece's src/normalizer.cc has it: the bytes of a trie, the trie (a double
// array, as darts-clone writes it), and texts that end in zeros.
class CharacterMap {
 public:
  // FileError for bytes that are no table.
  explicit CharacterMap(const std::string& bytes);

  // As the library tokenizers applies it (its spm_precompiled): to graphemes of up to 5 bytes as a
  // whole, else to each character, and of several matches the shortest counts.
  std::string map_graphemes(std::string_view text) const;
  // As SentencePiece and llama.cpp apply it: the longest match at each place counts.
  std::string map_longest(std::string_view text) const;

 private:
  template <class Visit>
  void each_beginning(std::string_view text, const Visit& visit) const;
  bool append_shortest(std::string& result, std::string_view key) const;
  void append_grapheme(std::string& result, std::string_view grapheme) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace rw
