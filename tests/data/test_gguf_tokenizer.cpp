// Tokenizers from the metadata of GGUF files.
#include <doctest/doctest.h>

#include <cmath>

#include "core/base/error.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/gguf_tokenizer.h"

using namespace rw;

namespace {

constexpr const char* piece_mark = "\u2581";

// A SentencePiece model: special tokens, the bytes, and pieces with their scores.
GgufTokenizer pieces(const std::vector<std::pair<std::string, float>>& scored) {
  GgufTokenizer metadata{.model = "llama", .tokens = {"<unk>", "<s>", "</s>"}};
  metadata.token_type = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    metadata.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    metadata.token_type.push_back(6);
  }
  metadata.scores.assign(metadata.tokens.size(), 0);
  for (const auto& [text, score] : scored) {
    metadata.tokens.push_back(text);
    metadata.token_type.push_back(1);
    metadata.scores.push_back(score);
  }
  metadata.bos_token_id = 1;
  metadata.eos_token_id = 2;
  return metadata;
}

// A byte-level model of the characters of printable bytes, and some merges.
GgufTokenizer byte_model(const std::vector<std::string>& merges) {
  GgufTokenizer metadata{.model = "gpt2", .pre = "gpt-2"};
  for (char c = '!'; c <= '~'; ++c) metadata.tokens.emplace_back(1, c);
  metadata.tokens.emplace_back("\u0120");  // a space
  for (const std::string& merge : merges) {
    metadata.merges.push_back(merge);
    std::string token = merge;
    token.erase(token.find(' ', 1), 1);
    metadata.tokens.push_back(token);
  }
  metadata.tokens.emplace_back("<|end|>");
  metadata.token_type.assign(metadata.tokens.size(), 1);
  metadata.token_type.back() = 3;
  metadata.eos_token_id = static_cast<int32_t>(metadata.tokens.size()) - 1;
  return metadata;
}

std::vector<std::string> words(const BpeTokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> result;
  for (const int32_t id : tokenizer.encode(text)) result.push_back(tokenizer.token(id));
  return result;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("gguf tokenizer: SentencePiece merges by score") {
  const std::string mark = piece_mark;
  const auto metadata = pieces({{"ab", -1},
                                {"bc", -2},
                                {"abc", -3},
                                {mark + "a", -4},
                                {mark + mark, -9},
                                {mark + mark + mark, -9},
                                {"a", -20},
                                {"b", -20},
                                {"c", -20},
                                {mark, -20}});
  const BpeTokenizer tokenizer(from_gguf(metadata));
  CHECK(words(tokenizer, "abc") == Words{mark, "abc"});
  CHECK(words(tokenizer, "bcab") == Words{mark, "bc", "ab"});
  CHECK(words(tokenizer, "a") == Words{mark + "a"});
  // The leftmost of equal scores grows.
  CHECK(words(tokenizer, "    b") == Words{mark + mark + mark, mark + mark, "b"});
  CHECK(words(tokenizer, "z</s>") == Words{mark, "<0x7A>", "</s>"});
  CHECK(tokenizer.decode(tokenizer.encode("zé c")) == "zé c");
  CHECK(tokenizer.encode("a", true, true).front() == 1);

  const BpeTokenizer ranked(from_gguf(
      pieces({{"ab", -2}, {"bc", -1}, {"a", -20}, {"b", -20}, {"c", -20}, {piece_mark, -20}})));
  CHECK(words(ranked, "abc") == Words{mark, "a", "bc"});

  auto bare = metadata;
  bare.add_space_prefix = false;
  bare.add_bos_token = false;
  const BpeTokenizer unspaced(from_gguf(bare));
  CHECK(words(unspaced, "a") == Words{"a"});
  CHECK(unspaced.decode(unspaced.encode(" a")) == " a");
  CHECK(unspaced.encode("a", true, true).size() == 1);
}

TEST_CASE("gguf tokenizer: bytes by merges, cut by the named patterns") {
  auto metadata = byte_model({"a b", "ab c", "\u0120 a"});
  const BpeTokenizer tokenizer(from_gguf(metadata));
  CHECK(words(tokenizer, "abc a") == Words{"abc", "\u0120a"});
  CHECK(words(tokenizer, "11 ab<|end|>") == Words{"1", "1", "\u0120", "ab", "<|end|>"});
  CHECK(tokenizer.eos() == tokenizer.size() - 1);
  CHECK(tokenizer.encode("a", true, true).size() == 1);

  metadata.pre = "llama-bpe";
  metadata.bos_token_id = metadata.eos_token_id;
  metadata.eot_token_id = 5;
  const BpeTokenizer llama(from_gguf(metadata));
  CHECK(llama.parts().ignore_merges);
  CHECK(llama.encode("a", true, true).size() == 2);
  CHECK(llama.is_eos(5));
  metadata.pre = "qwen2";
  CHECK(from_gguf(metadata).normalizers ==
        std::vector<NormalizerStep>{{.kind = Normalization::nfc}});
}

TEST_CASE("gguf tokenizer: metadata survives a round trip") {
  auto byte_level = byte_model({"a b", "ab c", "\u0120 a"});
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "default"}) {
    byte_level.pre = pre;
    byte_level.chat_template = "{{ messages }}";
    const GgufTokenizer again = to_gguf(from_gguf(byte_level));
    CHECK(again.model == "gpt2");
    CHECK(again.pre == pre);
    CHECK(again.tokens == byte_level.tokens);
    CHECK(again.token_type == byte_level.token_type);
    CHECK(again.merges == byte_level.merges);
    CHECK(again.eos_token_id == byte_level.eos_token_id);
    CHECK(again.chat_template == byte_level.chat_template);
  }
  auto spaced = pieces(
      {{"ab", -1}, {"bc", -2}, {"abc", -3}, {"a", -20}, {"b", -20}, {"c", -20}, {piece_mark, -20}});
  spaced.tokens.emplace_back("  ");  // with spaces, as llama.cpp looks for it
  spaced.token_type.push_back(4);
  spaced.scores.push_back(-5);
  const BpeParts parts = from_gguf(spaced);
  const GgufTokenizer again = to_gguf(parts);
  CHECK(again.tokens == spaced.tokens);
  CHECK(from_gguf(again).merges == parts.merges);
  CHECK(parts.tokens.back().text == std::string(piece_mark) + piece_mark);
}

TEST_CASE("gguf tokenizer: malformed metadata") {
  const auto good = byte_model({"a b"});
  const auto refused = [](GgufTokenizer metadata) {
    CHECK_THROWS_AS(BpeTokenizer(from_gguf(metadata)), FileError);
  };
  auto bad = good;
  bad.pre = "no such pattern";
  refused(bad);
  bad = good;
  bad.model = "bert";
  refused(bad);
  for (const char* merge : {"", " ", "a", "ab", "a zz", "zz a", "z z"}) {
    bad = good;
    bad.merges = {merge};
    refused(bad);
  }
  bad = good;
  bad.merges.push_back("a b");
  refused(bad);
  for (const int32_t type : {0, 7, -1}) {
    bad = good;
    bad.token_type[3] = type;
    refused(bad);
  }
  bad = good;
  bad.token_type.pop_back();
  refused(bad);
  bad = good;
  bad.tokens[1] = bad.tokens[0];
  refused(bad);
  bad = good;
  bad.tokens[1] = "\xFF";
  refused(bad);
  bad = good;
  bad.eos_token_id = 1'000'000'000;
  refused(bad);
  bad = good;
  bad.bos_token_id = -1;
  refused(bad);
  bad = good;
  bad.tokens.clear(), bad.token_type.clear(), bad.merges.clear();
  refused(bad);

  auto piece = pieces({{"a", -1}});
  piece.scores.pop_back();
  refused(piece);
  piece.scores.push_back(std::nanf(""));
  refused(piece);
  piece = pieces({{"a", -1}});
  piece.tokens[5] = "no byte";
  refused(piece);

  BpeParts parts = from_gguf(good);
  parts.splits[0].pattern = "a";
  CHECK_THROWS_AS(to_gguf(parts), ValueError);
}

TEST_SUITE_END();
