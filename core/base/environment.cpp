#include "core/base/environment.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr std::array switches = {
    "addresses",        "arithmetic",  "background-pipelines",
    "bf16-matrices",    "f16-storage", "fusion",
    "half-packing",     "halves",      "int64",
    "large-shared",     "matrices",    "memory-budget",
    "push-descriptors", "self-check",  "shuffle",
    "texels",           "timestamps",  "tuning",
    "unified-memory",
};
constexpr std::array limits = {"block", "dispatch-us", "range", "shared"};

template <class Names>
std::string listed(const Names& names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

// The parts between commas.
template <class F>
void each_word(std::string_view text, F&& f) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) f(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

bool is_without(std::string_view what) {
  bool found = false;
  each_word(env_text("REWIND_WITHOUT"), [&](std::string_view word) {
    check<ValueError>(std::ranges::find(switches, word) != switches.end(), "environment",
                      "REWIND_WITHOUT must name some of {}, got '{}'", listed(switches), word);
    found = found || word == what;
  });
  return found;
}

std::optional<uint64_t> env_limit(std::string_view what) {
  std::optional<uint64_t> found;
  each_word(env_text("REWIND_LIMITS"), [&](std::string_view word) {
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string_view digits = word.substr(std::min(colon + 1, word.size()));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool known = std::ranges::find(limits, word.substr(0, colon)) != limits.end();
    check<ValueError>(known && error == std::errc() && end == digits.end() && value > 0,
                      "environment",
                      "REWIND_LIMITS must be NAME:NUMBER,... with numbers above 0 and names of {}, "
                      "got '{}'",
                      listed(limits), word);
    if (word.substr(0, colon) == what) found = value;
  });
  return found;
}

}  // namespace rw
