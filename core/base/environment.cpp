#include "core/base/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr std::array switches = {
    "addresses",     "arithmetic",    "background-pipelines",
    "bf16-matrices", "f16-storage",   "fusion",
    "half-packing",  "halves",        "large-shared",
    "matrices",      "memory-budget", "push-descriptors",
    "self-check",    "shuffle",       "texels",
    "timestamps",    "tuning",        "unified-memory",
    "x86-64-v3",     "x86-64-v4",
};
constexpr std::array limits = {"block", "dispatch-us", "range", "shared", "tile-subgroups"};

}  // namespace

std::vector<std::string> comma_separated(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty()) all.push_back(part);
  return all;
}

bool is_without(std::string_view what) {
  bool found = false;
  for (const std::string& word : comma_separated(env_text("REWIND_WITHOUT"))) {
    check<ValueError>(std::ranges::find(switches, word) != switches.end(), "environment",
                      "REWIND_WITHOUT must name some of {}, got '{}'", fmt::join(switches, ", "),
                      word);
    found = found || word == what;
  }
  return found;
}

std::optional<uint64_t> env_limit(std::string_view what) {
  std::optional<uint64_t> found;
  for (const std::string_view word : comma_separated(env_text("REWIND_LIMITS"))) {
    const size_t colon = std::min(word.find(':'), word.size());
    const std::string_view digits = word.substr(std::min(colon + 1, word.size()));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool known = std::ranges::find(limits, word.substr(0, colon)) != limits.end();
    check<ValueError>(known && error == std::errc() && end == digits.end() && value > 0,
                      "environment",
                      "REWIND_LIMITS must be NAME:NUMBER,... with numbers above 0 and names of {}, "
                      "got '{}'",
                      fmt::join(limits, ", "), word);
    if (word.substr(0, colon) == what) found = value;
  }
  return found;
}

}  // namespace rw
