// The tables of a BpeTokenizer, made of its parts once.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bpe_parts.h"
#include "merge_table.h"
#include "text_splitter.h"

namespace rw {

struct BpeModel {
  // FileError if the parts contradict each other.
  explicit BpeModel(BpeParts from);
  BpeModel(const BpeModel&) = delete;

  const BpeToken& token(int32_t id) const { return parts.tokens[static_cast<size_t>(id)]; }
  // The bytes that a token stands for, with `blank` for each U+2581.
  std::string bytes_of(const BpeToken& token, std::string_view blank = " ") const;
  // The text that merges see, from a piece that the early splits cut of a normalised one between
  // added tokens. `is_first`: nothing precedes it.
  std::string with_space(std::string_view text, bool is_first) const;
  bool is_unigram() const { return !parts.scores.empty(); }

  const BpeParts parts;
  std::unordered_map<std::string_view, int32_t> ids;  // by the texts of `parts`
  std::vector<std::string> bytes;                     // that tokens stand for
  std::array<int32_t, 256> byte_ids;                  // tokens of single bytes; -1: there is none
  MergeTable merges;
  TokenTrie pieces;                     // the texts of a unigram model
  double unknown_score = 0;             // of a character without a piece
  AddedTokens added, normalised_added;  // those of texts as they are, and of normalised ones
  TextNormalizer normalizer;
  TextSplitter early_splitter, splitter;  // to be copied

 private:
  void add_token(int32_t id);
  void add_merges();
  void add_pieces();
};

}  // namespace rw
