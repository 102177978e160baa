#include "data/tokenizers/bpe_encoder.h"

#include <algorithm>
#include <functional>

#include "data/base/unicode.h"
#include "data/tokenizers/byte_alphabet.h"

namespace rw {

// Appends the added tokens of a text, and visits what lies between them.
template <class Visit>
void BpeEncoder::for_each_part(const AddedTokens& added, std::string_view text, bool special_tokens,
                               const Visit& visit) {
  size_t done = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto match = added.find(text, begin);
    begin = match.end;
    const bool is_token = match.id >= 0;
    if (is_token && !special_tokens && is_special(model_.token(match.id).type)) continue;
    if (match.begin > done) visit(text.substr(done, match.begin - done));
    if (is_token) out_.push_back(match.id);
    done = match.end;
  }
  if (done < text.size()) visit(text.substr(done));
}

void BpeEncoder::append(std::string_view text, bool special_tokens) {
  for_each_part(model_.added, text, special_tokens, [&](std::string_view part) {
    const std::string normal = model_.normalised(part);
    for_each_part(model_.normalised_added, normal, special_tokens, [&](std::string_view rest) {
      const bool is_first = part.data() == text.data() && rest.data() == normal.data();
      const std::string words = model_.with_space(rest, is_first);
      for (const std::string_view word : splitter_.split(words)) append_word(word);
    });
  });
}

void BpeEncoder::append_symbol(int32_t id) {
  const auto place = static_cast<int32_t>(symbols_.size());
  if (place > 0) symbols_.back().next = place;
  symbols_.push_back({id, place - 1, -1});
}

void BpeEncoder::append_word(std::string_view word) {
  if (model_.parts.ignore_merges) {
    const auto whole =
        model_.ids.find(model_.parts.byte_level ? bytes_to_characters(word) : std::string(word));
    if (whole != model_.ids.end() && !is_added(model_.token(whole->second).type)) {
      out_.push_back(whole->second);
      return;
    }
  }
  symbols_.clear();
  Character c;
  for (size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    if (!model_.parts.byte_level) {
      next_character(word, end, c);
      const auto found = model_.ids.find(word.substr(begin, end - begin));
      if (found != model_.ids.end()) {
        append_symbol(found->second);
        continue;
      }
    } else {
      end = begin + 1;
    }
    // Hugging Face's tokenizers also leave out bytes without a token.
    for (const char byte : word.substr(begin, end - begin))
      if (const int32_t id = model_.byte_ids[static_cast<uint8_t>(byte)]; id >= 0)
        append_symbol(id);
  }
  merge_symbols();
  for (const Symbol& symbol : symbols_)
    if (symbol.id >= 0) out_.push_back(symbol.id);
}

// Queues the merge of a symbol with the next one, if there is one.
void BpeEncoder::queue_merge(int32_t place) {
  const Symbol& left = symbols_[static_cast<size_t>(place)];
  if (left.next < 0) return;
  const uint32_t rank = model_.merges.rank(left.id, symbols_[static_cast<size_t>(left.next)].id);
  if (rank == MergeTable::none) return;
  queue_.push_back(uint64_t{rank} << 32 | static_cast<uint32_t>(place));
  std::ranges::push_heap(queue_, std::greater());
}

// The merge of the lowest rank comes first, and of several places the leftmost one.
void BpeEncoder::merge_symbols() {
  queue_.clear();
  for (size_t place = 0; place + 1 < symbols_.size(); ++place)
    queue_merge(static_cast<int32_t>(place));
  while (!queue_.empty()) {
    std::ranges::pop_heap(queue_, std::greater());
    const uint64_t best = queue_.back();
    queue_.pop_back();
    const auto place = static_cast<int32_t>(best & UINT32_MAX);
    const Merge& merge = model_.merges.merge(static_cast<uint32_t>(best >> 32));
    Symbol& left = symbols_[static_cast<size_t>(place)];
    if (left.id != merge.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    if (right.id != merge.right) continue;  // one of the two has merged with another one
    left.id = merge.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = place;
    if (left.previous >= 0) queue_merge(left.previous);
    queue_merge(place);
  }
}

}  // namespace rw
