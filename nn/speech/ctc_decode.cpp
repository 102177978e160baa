#include "nn/speech/ctc_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  const double top = std::max(a, b);
  return top == never ? never : top + std::log1p(std::exp(std::min(a, b) - top));
}

// Log-probabilities on the host.
class Frames {
 public:
  Frames(const char* op, const Tensor& x, std::span<const int64_t> lengths, int32_t blank) {
    check<ShapeError>(x.rank() == 3, op, "log_probs must be [T, N, C], got {}", x);
    samples = x.size(1), classes = x.size(2);
    check(blank >= 0 && blank < classes, op, "the blank must be one of {} classes, got {}", classes,
          blank);
    check(lengths.empty() || static_cast<int64_t>(lengths.size()) == samples, op,
          "there must be a length for each of {} samples, got {}", samples, lengths.size());
    for (const int64_t length : lengths)
      check(length >= 0 && length <= x.size(0), op, "lengths must be 0 to {} frames, got {}",
            x.size(0), length);
    lengths_.assign(lengths.begin(), lengths.end());
    if (lengths.empty()) lengths_.assign(static_cast<size_t>(samples), x.size(0));
    values_ = x.to_vector();
  }

  int64_t length(int64_t sample) const { return lengths_[static_cast<size_t>(sample)]; }
  std::span<const float> at(int64_t frame, int64_t sample) const {
    return std::span(values_).subspan(static_cast<size_t>((frame * samples + sample) * classes),
                                      static_cast<size_t>(classes));
  }

  int64_t samples, classes;

 private:
  std::vector<int64_t> lengths_;
  std::vector<float> values_;
};

CtcHypothesis greedy(const Frames& frames, int64_t sample, int32_t blank) {
  CtcHypothesis heard{{}, 0};
  int32_t before = blank;
  for (int64_t t = 0; t < frames.length(sample); ++t) {
    const auto x = frames.at(t, sample);
    const auto top = std::max_element(x.begin(), x.end());
    const auto label = static_cast<int32_t>(top - x.begin());
    heard.log_probability += *top;
    if (label != blank && label != before) heard.labels.push_back(label);
    before = label;
  }
  return heard;
}

// Log-probabilities of the paths to a prefix that end with a blank, and of those that end with its
// last label.
struct Ways {
  double blank = never, label = never;
  double all() const { return log_add(blank, label); }
};
using Prefixes = std::map<std::vector<int32_t>, Ways>;

// The prefixes one frame later.
Prefixes extended(const Prefixes& prefixes, std::span<const float> x, const CtcBeamOptions& o) {
  Prefixes next;
  for (const auto& [labels, ways] : prefixes)
    for (int32_t c = 0; c < static_cast<int32_t>(x.size()); ++c) {
      const double p = x[static_cast<size_t>(c)];
      if (c == o.blank) {
        Ways& same = next[labels];
        same.blank = log_add(same.blank, ways.all() + p);
        continue;
      }
      const bool repeats = !labels.empty() && labels.back() == c;
      if (repeats) {
        Ways& same = next[labels];
        same.label = log_add(same.label, ways.label + p);
      }
      if (p < o.least) continue;
      std::vector<int32_t> longer = labels;
      longer.push_back(c);
      Ways& added = next[std::move(longer)];
      added.label = log_add(added.label, (repeats ? ways.blank : ways.all()) + p);
    }
  return next;
}

// The `count` most likely prefixes, the most likely first; equal ones in the order of labels.
std::vector<std::pair<std::vector<int32_t>, Ways>> likeliest(Prefixes prefixes, int count) {
  std::vector<std::pair<std::vector<int32_t>, Ways>> sorted(prefixes.begin(), prefixes.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& p) { return p.second.all(); });
  if (sorted.size() > static_cast<size_t>(count)) sorted.resize(static_cast<size_t>(count));
  return sorted;
}

}  // namespace

std::vector<CtcHypothesis> ctc_greedy_decode(const Tensor& log_probs,
                                             std::span<const int64_t> lengths, int32_t blank) {
  const Frames frames("ctc_greedy_decode", log_probs, lengths, blank);
  std::vector<CtcHypothesis> heard;
  for (int64_t n = 0; n < frames.samples; ++n) heard.push_back(greedy(frames, n, blank));
  return heard;
}

std::vector<std::vector<CtcHypothesis>> ctc_beam_decode(const Tensor& log_probs,
                                                        std::span<const int64_t> lengths,
                                                        const CtcBeamOptions& options) {
  check(options.beam >= 1 && options.best >= 1, "ctc_beam_decode",
        "beam and best must be 1 or more, got {} and {}", options.beam, options.best);
  const Frames frames("ctc_beam_decode", log_probs, lengths, options.blank);
  std::vector<std::vector<CtcHypothesis>> heard(static_cast<size_t>(frames.samples));
  for (int64_t n = 0; n < frames.samples; ++n) {
    Prefixes prefixes = {{{}, {.blank = 0}}};
    for (int64_t t = 0; t < frames.length(n); ++t) {
      const auto kept = likeliest(extended(prefixes, frames.at(t, n), options), options.beam);
      prefixes = Prefixes(kept.begin(), kept.end());
    }
    for (const auto& [labels, ways] : likeliest(std::move(prefixes), options.best))
      heard[static_cast<size_t>(n)].push_back({labels, static_cast<float>(ways.all())});
  }
  return heard;
}

int64_t edit_distance(std::span<const int32_t> heard, std::span<const int32_t> said) {
  std::vector<int64_t> row(said.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= heard.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= said.size(); ++j) {
      const int64_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (heard[i - 1] != said[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

namespace {

// Numbers the words of a text; `known` remembers the numbers.
std::vector<int32_t> numbered_words(std::string_view text,
                                    std::map<std::string_view, int32_t>& known) {
  std::vector<int32_t> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (!word.empty())
      words.push_back(known.try_emplace(word, static_cast<int32_t>(known.size())).first->second);
  }
  return words;
}

}  // namespace

double WordErrors::rate() const {
  if (words > 0) return static_cast<double>(errors) / static_cast<double>(words);
  return errors > 0 ? std::numeric_limits<double>::infinity() : 0;
}

WordErrors& WordErrors::operator+=(const WordErrors& other) {
  errors += other.errors;
  words += other.words;
  return *this;
}

WordErrors word_errors(std::string_view heard, std::string_view said) {
  std::map<std::string_view, int32_t> known;
  const std::vector<int32_t> a = numbered_words(heard, known), b = numbered_words(said, known);
  return {edit_distance(a, b), static_cast<int64_t>(b.size())};
}

}  // namespace rw
