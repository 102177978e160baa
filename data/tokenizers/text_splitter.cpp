#include "data/tokenizers/text_splitter.h"

#include <unicode/uchar.h>
#include <unicode/uregex.h>
#include <unicode/ustring.h>
#include <unicode/utext.h>

#include <memory>

#include "core/base/error.h"
#include "data/base/icu.h"

namespace rw {

namespace {

URegularExpression* compile(const TextSplit& split) {
  const std::string& text = split.pattern;
  UErrorCode status = U_ZERO_ERROR;
  UText source = UTEXT_INITIALIZER;
  utext_openUTF8(&source, text.data(), static_cast<int64_t>(text.size()), &status);
  UParseError where;
  URegularExpression* pattern = uregex_openUText(
      &source, split.literal ? uint32_t{UREGEX_LITERAL} : regex_flags, &where, &status);
  utext_close(&source);
  check<FileError>(U_SUCCESS(status), "BpeTokenizer",
                   "a split must have a regular expression that ICU knows, got {:?}: {}",
                   split.pattern, u_errorName(status));
  return pattern;
}

std::shared_ptr<URegularExpression> owned(URegularExpression* pattern) {
  return {pattern, uregex_close};
}

// ICU takes 32 bytes for each of many blanks in a row, and stops at 8 MB by itself. Behind this
// many steps of 10 000 characters, a pattern goes back and forth without an end.
constexpr int32_t most_match_bytes = 256 << 20, most_match_steps = 10'000;

void check_match(UErrorCode status) {
  check(U_SUCCESS(status), "BpeTokenizer",
        "the text must be one that ICU can cut into words, got {}", u_errorName(status));
}

}  // namespace

struct TextSplitter::Step {
  std::shared_ptr<URegularExpression> pattern;  // of this splitter alone: it has state
  SplitBehavior behavior;
  bool invert;
};

std::string unicode_of_patterns() {
  UVersionInfo version;
  u_getUnicodeVersion(version);
  return fmt::format("{}.{}", version[0], version[1]);
}

TextSplitter::TextSplitter(const std::vector<TextSplit>& steps) {
  for (const TextSplit& step : steps)
    steps_.push_back({owned(compile(step)), step.behavior, step.invert});
}

TextSplitter::TextSplitter(const TextSplitter& other) {
  for (const Step& step : other.steps_) {
    UErrorCode status = U_ZERO_ERROR;
    steps_.push_back(
        {owned(uregex_clone(step.pattern.get(), &status)), step.behavior, step.invert});
    check_match(status);
    uregex_setStackLimit(steps_.back().pattern.get(), most_match_bytes, &status);
    uregex_setTimeLimit(steps_.back().pattern.get(), most_match_steps, &status);
    check_match(status);
  }
}

TextSplitter::~TextSplitter() = default;

// Appends the pieces of a text to `next_`. As Hugging Face's tokenizers do it, only the first of
// several matches in a row joins the text before them, and only the last one that behind them.
void TextSplitter::apply(const Step& step, std::string_view text) {
  const size_t first = next_.size();
  bool was_match = false;
  const auto add = [&](size_t begin, size_t end, bool is_match) {
    if (begin == end) return;
    const std::string_view part = text.substr(begin, end - begin);
    is_match = is_match != step.invert;
    const auto join_last = [&] {
      std::string_view& last = next_.back();
      last = {last.data(), last.size() + part.size()};
    };
    const bool joins = step.behavior == SplitBehavior::merged_with_previous ? is_match && !was_match
                       : step.behavior == SplitBehavior::merged_with_next   ? was_match && !is_match
                                                                            : false;
    if (joins && next_.size() > first)
      join_last();
    else if (!is_match || step.behavior != SplitBehavior::removed)
      next_.push_back(part);
    was_match = is_match;
  };

  UErrorCode status = U_ZERO_ERROR;
  UText source = UTEXT_INITIALIZER;
  utext_openUTF8(&source, text.data(), static_cast<int64_t>(text.size()), &status);
  uregex_setUText(step.pattern.get(), &source, &status);
  size_t done = 0;
  while (uregex_findNext(step.pattern.get(), &status)) {
    const auto begin = static_cast<size_t>(uregex_start64(step.pattern.get(), 0, &status));
    const auto end = static_cast<size_t>(uregex_end64(step.pattern.get(), 0, &status));
    add(done, begin, false);
    add(begin, end, true);
    done = end;
  }
  utext_close(&source);
  check_match(status);
  add(done, text.size(), false);
}

const std::vector<std::string_view>& TextSplitter::split(std::string_view text) {
  pieces_.assign(1, text);
  for (const Step& step : steps_) {
    next_.clear();
    for (const std::string_view piece : pieces_) apply(step, piece);
    std::swap(pieces_, next_);
  }
  return pieces_;
}

}  // namespace rw
