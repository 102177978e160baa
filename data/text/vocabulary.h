// BERT's vocabulary: one token per line, whose id is the number of its line. Tokens that continue a
// word start with "##".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rw {

// Tokens and their ids.
class Vocabulary {
 public:
  // The tokens must include [PAD], [UNK], [CLS], [SEP] and [MASK]; none may be empty, repeated or
  // not UTF-8, and there are at most 2^22. ValueError.
  explicit Vocabulary(std::vector<std::string> tokens);
  // Reads a file of at most 64 MiB. Throws FileError with the line.
  static Vocabulary load(const std::filesystem::path& file);
  // One token per line. Throws FileError.
  void save(const std::filesystem::path& file) const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // tokens
  // ValueError for an id outside [0, size()).
  const std::string& token(int64_t id) const;
  // The id of a token, or -1.
  int32_t id(std::string_view token) const;
  // The same for "##" + `piece`.
  int32_t continuing_id(std::string_view piece) const;
  // Whether a token continues the word of the token before it.
  bool continues(int64_t id) const { return token(id).starts_with("##"); }
  // Whether it is one of the five below.
  bool is_special(int64_t id) const {
    return id == pad || id == unk || id == cls || id == sep || id == mask;
  }
  // The number of characters of the longest token.
  size_t longest() const { return longest_; }

  int32_t pad, unk, cls, sep, mask;  // ids of [PAD], [UNK], [CLS], [SEP] and [MASK]

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Ids = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  std::vector<std::string> tokens_;
  Ids ids_, continuing_;  // continuing_: without the "##"
  size_t longest_ = 0;
};

}  // namespace rw
