#include "data/tokenizers/bpe_encoder.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <functional>
#include <ranges>

#include "core/base/error.h"
#include "data/base/byte_alphabet.h"
#include "data/base/unicode.h"

namespace rw {

namespace {

// Letters, marks, digits, underscores and joiners, as Rust's \w has them.
bool is_word_character(char32_t code) {
  const auto c = static_cast<UChar32>(code);
  constexpr uint32_t others = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || (U_GET_GC_MASK(c) & others) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

bool is_white_space(char32_t code) {
  return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0;
}

// The character that ends at `at`, or that begins there; 0 if there is none.
char32_t character_before(std::string_view text, size_t at) {
  if (at == 0) return 0;
  size_t begin = at - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  Character c;
  return next_character(text, begin, c) ? c.code : 0;
}
char32_t character_after(std::string_view text, size_t at) {
  Character c;
  return at < text.size() && next_character(text, at, c) ? c.code : 0;
}

// The number of bytes of a character.
size_t width_of(char32_t code) {
  return static_cast<size_t>(U8_LENGTH(static_cast<UChar32>(code)));
}

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

}  // namespace

bool BpeEncoder::is_found(const AddedTokens::Match& match, std::string_view text,
                          bool special_tokens) const {
  if (match.id < 0) return false;
  const BpeToken& token = model_.token(match.id);
  if (!special_tokens && is_special(token.type)) return false;
  return !token.single_word || (!is_word_character(character_before(text, match.begin)) &&
                                !is_word_character(character_after(text, match.end)));
}

// Appends the added tokens of a text, and visits what lies between them. As in the library, the
// search goes on behind the token, not behind the white space that it takes.
template <class Visit>
void BpeEncoder::for_each_part(const AddedTokens& added, std::string_view text, bool special_tokens,
                               const Visit& visit) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto match = added.find(text, at);
    at = match.end;
    if (!is_found(match, text, special_tokens)) continue;
    size_t begin = match.begin, end = match.end;
    const BpeToken& token = model_.token(match.id);
    if (token.lstrip)
      for (char32_t c; begin > done && is_white_space(c = character_before(text, begin));)
        begin -= width_of(c);
    if (token.rstrip)
      for (char32_t c; end < text.size() && is_white_space(c = character_after(text, end));)
        end += width_of(c);
    if (begin > done) visit(text.substr(done, begin - done));
    out_.push_back(match.id);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done));
}

void BpeEncoder::append(std::string_view text, bool special_tokens) {
  for_each_part(model_.added, text, special_tokens, [&](std::string_view part) {
    const std::string normal = model_.normalizer.normalised(part);
    for_each_part(model_.normalised_added, normal, special_tokens, [&](std::string_view rest) {
      append_words(rest, part.data() == text.data() && rest.data() == normal.data());
    });
  });
}

void BpeEncoder::append_words(std::string_view text, bool is_first) {
  for (const std::string_view piece : early_splitter_.split(text)) {
    const std::string words = model_.with_space(piece, is_first && piece.data() == text.data());
    for (const std::string_view word : splitter_.split(words)) append_word(word);
  }
}

void BpeEncoder::append_symbol(int32_t id) {
  const auto place = static_cast<int32_t>(symbols_.size());
  if (place > 0) symbols_.back().next = place;
  symbols_.push_back({id, place - 1, -1});
}

void BpeEncoder::append_word(std::string_view word) {
  if (model_.is_unigram())
    return append_pieces(model_.parts.byte_level ? bytes_to_characters(word) : std::string(word));
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

// The most probable pieces (Viterbi), in the library's order of comparisons: of equal ones the
// first that was found stays, and the unknown characters of a run are one piece.
void BpeEncoder::append_pieces(std::string_view word) {
  struct Best {
    double score = 0;
    int32_t id = -1;  // of the last piece
    size_t begin = std::string_view::npos;
  };
  std::vector<Best> best(word.size() + 1);  // of the word up to each byte
  const auto propose = [&](size_t begin, size_t end, double score, int32_t id) {
    score += best[begin].score;
    if (best[end].begin == std::string_view::npos || score > best[end].score)
      best[end] = {score, id, begin};
  };
  Character c;
  for (size_t begin = 0, next = 0; begin < word.size(); begin = next) {
    next_character(word, next, c);
    bool has_single = false;
    model_.pieces.each_at(word, begin, [&](int32_t id, size_t end) {
      has_single = has_single || end == next;
      propose(begin, end, model_.parts.scores[static_cast<size_t>(id)], id);
    });
    if (has_single) continue;
    check(model_.parts.unknown.has_value(), "BpeTokenizer",
          "a text must have only characters of its pieces, since no token is unk_id, got {:?}",
          word.substr(begin, next - begin));
    propose(begin, next, model_.unknown_score, *model_.parts.unknown);
  }
  std::vector<std::pair<size_t, size_t>> path;  // the begins and ends of pieces, the last one first
  bool was_unknown = false;
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const bool is_unknown = best[end].id == model_.parts.unknown;
    if (is_unknown && was_unknown)
      path.back().first = best[end].begin;
    else
      path.emplace_back(best[end].begin, end);
    was_unknown = is_unknown;
  }
  for (const auto& [begin, end] : std::views::reverse(path)) {
    int32_t whole = -1;
    const std::string_view piece = word.substr(begin, end - begin);
    model_.pieces.each_at(piece, 0, [&](int32_t id, size_t at) {
      if (at == piece.size()) whole = id;
    });
    if (whole >= 0)
      out_.push_back(whole);
    else
      append_unknown(piece);
  }
}

void BpeEncoder::append_unknown(std::string_view text) {
  const auto id_of = [&](char byte) { return model_.byte_ids[static_cast<uint8_t>(byte)]; };
  const bool has_bytes = std::ranges::all_of(text, [&](char byte) { return id_of(byte) >= 0; });
  if (!model_.parts.byte_fallback || !has_bytes) return out_.push_back(*model_.parts.unknown);
  for (const char byte : text) out_.push_back(id_of(byte));
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

void append_tokens(const BpeModel& model, std::string_view text, bool special_tokens,
                   std::vector<int32_t>& out) {
  BpeEncoder(model, out).append(text, special_tokens);
}

}  // namespace rw
