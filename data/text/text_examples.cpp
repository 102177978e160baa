#include "data/text/text_examples.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

using Ids = std::vector<int32_t>;

// Documents of sentences of tokens; no document and no sentence is empty.
std::vector<std::vector<Ids>> tokenize_all(std::span<const Document> documents,
                                           const Tokenizer& tokenizer) {
  std::vector<std::vector<Ids>> result;
  for (const Document& document : documents) {
    std::vector<Ids> sentences;
    for (const std::string& sentence : document)
      if (Ids ids = tokenizer.ids(sentence); !ids.empty()) sentences.push_back(std::move(ids));
    if (!sentences.empty()) result.push_back(std::move(sentences));
  }
  return result;
}

TextExample single(std::span<const int32_t> tokens, const Vocabulary& vocabulary) {
  TextExample example;
  example.ids.push_back(vocabulary.cls);
  example.ids.insert(example.ids.end(), tokens.begin(), tokens.end());
  example.ids.push_back(vocabulary.sep);
  example.second = static_cast<int64_t>(example.ids.size());
  return example;
}

// Cuts a stream of tokens into examples, before the word that no longer fits.
void cut(std::span<const int32_t> stream, size_t capacity, const Vocabulary& vocabulary,
         std::vector<TextExample>& out) {
  while (!stream.empty()) {
    size_t end = std::min(capacity, stream.size());
    if (end < stream.size())
      while (end > 0 && vocabulary.continues(stream[end])) --end;
    if (end == 0) end = std::min(capacity, stream.size());  // a word longer than an example
    // A separator at the end would be there twice; at the start it would separate nothing.
    auto part = stream.first(end);
    stream = stream.subspan(end);
    if (part.front() == vocabulary.sep) part = part.subspan(1);
    if (!part.empty() && part.back() == vocabulary.sep) part = part.first(part.size() - 1);
    if (!part.empty()) out.push_back(single(part, vocabulary));
  }
}

// The pairs of one document.
class PairMaker {
 public:
  PairMaker(const std::vector<std::vector<Ids>>& documents, const Vocabulary& vocabulary,
            const PairOptions& options)
      : documents_(documents), vocabulary_(vocabulary), options_(options) {}

  void append_pairs(size_t document, std::vector<TextExample>& out) {
    random_ = DataRandom(options_.seed, document);
    const auto& sentences = documents_[document];
    size_t first = 0, target = draw_target(), length = 0;
    for (size_t i = 0; i < sentences.size(); ++i) {
      length += sentences[i].size();
      if (i + 1 < sentences.size() && length < target) continue;
      const size_t count = i + 1 - first;
      const size_t split = first + (count > 1 ? 1 + random_.below(count - 1) : 1);
      const bool is_random = count == 1 || random_.below(2) == 1;
      Ids a = join(sentences, first, split, SIZE_MAX);
      Ids b = is_random ? random_text(document, target - std::min(target, a.size()))
                        : join(sentences, split, i + 1, SIZE_MAX);
      out.push_back(pair(a, b, is_random));
      if (is_random) i = split - 1;  // the text that the random one displaced comes next
      first = i + 1, length = 0, target = draw_target();
    }
  }

 private:
  size_t capacity() const { return static_cast<size_t>(options_.max_length) - 3; }

  size_t draw_target() {
    if (random_.uniform(0, 1) >= static_cast<float>(options_.short_probability)) return capacity();
    return 2 + random_.below(capacity() - 1);
  }

  // Joins the sentences [first, last) until there are `enough` tokens.
  static Ids join(const std::vector<Ids>& sentences, size_t first, size_t last, size_t enough) {
    Ids ids;
    for (; first < last && (ids.empty() || ids.size() < enough); ++first)
      ids.insert(ids.end(), sentences[first].begin(), sentences[first].end());
    return ids;
  }

  Ids random_text(size_t document, size_t length) {
    size_t other = random_.below(documents_.size() - 1);
    other += other >= document;
    const auto& sentences = documents_[other];
    return join(sentences, random_.below(sentences.size()), sentences.size(), length);
  }

  // The longer text loses a token at a random end until both fit.
  TextExample pair(Ids& a, Ids& b, bool is_random) {
    size_t a_first = 0, b_first = 0, a_last = a.size(), b_last = b.size();
    while (a_last - a_first + b_last - b_first > capacity()) {
      const bool longer = a_last - a_first > b_last - b_first, at_front = random_.below(2) == 1;
      if (at_front) {
        ++(longer ? a_first : b_first);
      } else {
        --(longer ? a_last : b_last);
      }
    }
    TextExample example = single(std::span(a).subspan(a_first, a_last - a_first), vocabulary_);
    const auto second = std::span(b).subspan(b_first, b_last - b_first);
    example.ids.insert(example.ids.end(), second.begin(), second.end());
    example.ids.push_back(vocabulary_.sep);
    example.label = is_random;
    return example;
  }

  const std::vector<std::vector<Ids>>& documents_;
  const Vocabulary& vocabulary_;
  const PairOptions& options_;
  DataRandom random_{0};
};

}  // namespace

std::vector<TextExample> pack_sequences(std::span<const Document> documents,
                                        const Tokenizer& tokenizer, int64_t max_length,
                                        bool cross_documents) {
  check(max_length >= 3, "pack_sequences", "max_length must hold [CLS], a token and [SEP], got {}",
        max_length);
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const auto capacity = static_cast<size_t>(max_length - 2);
  std::vector<TextExample> examples;
  Ids stream;
  for (const auto& sentences : tokenize_all(documents, tokenizer)) {
    if (!stream.empty()) stream.push_back(vocabulary.sep);
    for (const Ids& ids : sentences) stream.insert(stream.end(), ids.begin(), ids.end());
    if (cross_documents) continue;
    cut(stream, capacity, vocabulary, examples);
    stream.clear();
  }
  cut(stream, capacity, vocabulary, examples);
  return examples;
}

std::vector<TextExample> pack_pairs(std::span<const Document> documents, const Tokenizer& tokenizer,
                                    const PairOptions& options) {
  check(options.max_length >= 5, "pack_pairs",
        "max_length must hold [CLS], two tokens and two [SEP], got {}", options.max_length);
  const auto tokens = tokenize_all(documents, tokenizer);
  check(tokens.size() >= 2, "pack_pairs",
        "random second texts come from other documents, so there must be 2 or more, got {}",
        tokens.size());
  std::vector<TextExample> examples;
  PairMaker maker(tokens, tokenizer.vocabulary(), options);
  for (size_t i = 0; i < tokens.size(); ++i) maker.append_pairs(i, examples);
  return examples;
}

std::vector<TextExample> sentence_examples(const SentenceDataset& data, const Tokenizer& tokenizer,
                                           int64_t max_length) {
  std::vector<TextExample> examples;
  for (size_t i = 0; i < data.size(); ++i) {
    TextExample& example = examples.emplace_back();
    const Encoding encoding =
        data.has_pairs() ? tokenizer.encode_pair(data.sentences[i], data.seconds[i], max_length)
                         : tokenizer.encode(data.sentences[i], max_length);
    example.ids = encoding.ids;
    example.second = std::ranges::find(encoding.token_types, 1) - encoding.token_types.begin();
    if (!data.labels.empty()) example.label = data.labels[i];
  }
  return examples;
}

}  // namespace rw
