#include "optim/base/state_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace rw {

std::string part_name(const std::string& whole, const ElementRange& elements) {
  return fmt::format("{}[{}:{}]", whole, elements.offset, elements.end());
}

std::optional<StatePart> parse_part_name(const std::string& name) {
  const size_t open = name.rfind('[');
  if (open == std::string::npos || !name.ends_with(']')) return std::nullopt;
  const char *const end = name.data() + name.size() - 1, *at = name.data() + open + 1;
  int64_t first = 0, last = 0;
  const auto read = [&](int64_t& number, char after) {
    const auto [next, error] = std::from_chars(at, end, number);
    const bool is_number = error == std::errc() && next != at && *next == after;
    at = next + 1;
    return is_number && number >= 0;
  };
  if (!read(first, ':') || !read(last, ']') || at != end + 1 || first > last) return std::nullopt;
  return StatePart{name.substr(0, open), {first, last - first}};
}

std::string whole_name(const std::string& name) {
  const std::optional<StatePart> part = parse_part_name(name);
  return part ? part->whole : name;
}

StatePart SavedParts::meaning(const std::string& name, int64_t elements) {
  std::optional<StatePart> part = parse_part_name(name);
  return part && part->elements.size == elements ? *part : StatePart{name, {0, elements}};
}

void SavedParts::add(const std::string& name, int64_t elements) {
  const StatePart part = meaning(name, elements);
  saved_[part.whole].emplace(part.elements.offset, std::pair(count_++, part.elements));
}

std::optional<std::vector<SavedParts::Piece>> SavedParts::pieces(const std::string& name,
                                                                 int64_t elements) const {
  const StatePart wanted = meaning(name, elements);
  const auto found = saved_.find(wanted.whole);
  if (found == saved_.end()) return std::nullopt;
  const bool is_whole = wanted.whole == name;
  std::vector<Piece> pieces;
  int64_t next = wanted.elements.offset;
  for (const auto& [first, saved] : found->second) {
    const auto& [number, here] = saved;
    if (is_whole && here.end() > elements) return std::nullopt;
    const int64_t size = std::min(here.end(), wanted.elements.end()) - next;
    if (first > next || size <= 0) continue;
    pieces.push_back({number, next - first, next - wanted.elements.offset, size});
    next += size;
  }
  if (next < wanted.elements.end()) return std::nullopt;
  return pieces;
}

}  // namespace rw
