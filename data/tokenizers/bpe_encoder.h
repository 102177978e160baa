// Cuts texts into the tokens of a BpeModel.
#pragma once

#include <string_view>
#include <vector>

#include "bpe_model.h"

namespace rw {

// The tools of one call of encode(): a copy of the splitter, and memory that its words share.
class BpeEncoder {
 public:
  // Appends to `out`. Both must outlive it.
  BpeEncoder(const BpeModel& model, std::vector<int32_t>& out)
      : model_(model),
        early_splitter_(model.early_splitter),
        splitter_(model.splitter),
        out_(out) {}

  // The tokens of a whole text, which must be UTF-8.
  void append(std::string_view text, bool special_tokens);

 private:
  // A place in a word that is being merged: the token there, and the places beside it.
  struct Symbol {
    int32_t id;              // -1: it is part of the token before it
    int32_t previous, next;  // -1: there is none
  };

  template <class Visit>
  void for_each_part(const AddedTokens& added, std::string_view text, bool special_tokens,
                     const Visit& visit);
  bool is_found(const AddedTokens::Match& match, std::string_view text, bool special_tokens) const;
  void append_words(std::string_view text, bool is_first);
  void append_word(std::string_view word);
  void append_pieces(std::string_view word);
  void append_unknown(std::string_view text);
  void append_symbol(int32_t id);
  void queue_merge(int32_t place);
  void merge_symbols();

  const BpeModel& model_;
  TextSplitter early_splitter_, splitter_;
  std::vector<int32_t>& out_;
  std::vector<Symbol> symbols_;  // of a word
  std::vector<uint64_t> queue_;  // a heap of merges: the rank, and the place of the left token
};

}  // namespace rw
