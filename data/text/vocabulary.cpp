#include "data/text/vocabulary.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/base/unicode.h"

namespace rw {

namespace {

// Several times the size of the largest vocabularies in use.
constexpr uint64_t most_bytes = uint64_t{64} << 20;
constexpr size_t most_tokens = size_t{1} << 22;

constexpr const char* special_tokens[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

// The fault of the tokens, if any. They are counted from 1, as lines are.
std::optional<std::string> fault_of(const std::vector<std::string>& tokens) {
  if (tokens.size() > most_tokens) return fmt::format("it has more than {} tokens", most_tokens);
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    const auto fault = [&](const char* what) { return fmt::format("token {} {}", i + 1, what); };
    if (token.empty()) return fault("is empty");
    if (!is_valid_utf8(token)) return fault("is not UTF-8");
    if (token.find('\0') != token.npos) return fault("holds a NUL byte");
    if (token.find('\t') != token.npos) return fault("holds a tab; there must be tokens only");
    if (!seen.insert(token).second) return fault("is there a second time");
  }
  for (const char* special : special_tokens)
    if (!seen.contains(special)) return fmt::format("{} is missing", special);
  return std::nullopt;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() <= most_tokens) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  if (const auto fault = fault_of(tokens_)) fail("Vocabulary", "{}", *fault);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    const auto id = static_cast<int32_t>(i);
    ids_.emplace(token, id);
    if (token.starts_with("##")) continuing_.emplace(token.substr(2), id);
    // Counts the bytes that start a character.
    const auto characters = std::ranges::count_if(token, [](char c) { return (c & 0xC0) != 0x80; });
    longest_ = std::max(longest_, static_cast<size_t>(characters));
  }
  pad = id("[PAD]"), unk = id("[UNK]"), cls = id("[CLS]"), sep = id("[SEP]"), mask = id("[MASK]");
}

Vocabulary Vocabulary::load(const std::filesystem::path& file) {
  auto tokens = lines_of(read_text(file, most_bytes));
  if (const auto fault = fault_of(tokens))
    fail<FileError>("Vocabulary", "{} must be a vocabulary of one token per line, but {}",
                    file.string(), *fault);
  return Vocabulary(std::move(tokens));
}

void Vocabulary::save(const std::filesystem::path& file) const {
  std::string text;
  for (const std::string& token : tokens_) text += token + '\n';
  write_file(file, text);
}

const std::string& Vocabulary::token(int64_t id) const {
  check(id >= 0 && id < size(), "Vocabulary", "ids must be in [0, {}), got {}", size(), id);
  return tokens_[static_cast<size_t>(id)];
}

int32_t Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

int32_t Vocabulary::continuing_id(std::string_view piece) const {
  const auto found = continuing_.find(piece);
  return found == continuing_.end() ? -1 : found->second;
}

}  // namespace rw
