// Tokenizers from the metadata of GGUF files; unigram models against goldens/gguf_tokenizer.inc,
// which llama.cpp wrote.
#include <doctest/doctest.h>

#include <cmath>

#include "core/base/error.h"
#include "data/base/base64.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/gguf_tokenizer.h"
#include "tests/data/bpe_fixture.h"

using namespace rw;
using namespace std::literals;

namespace {

struct GgufPiece {
  std::string_view text;
  int32_t type;
  float score;
};

struct GgufResult {
  std::vector<int32_t> ids, plain;  // plain: special tokens are text
};

struct GgufGolden {
  bool add_space_prefix, remove_extra_whitespaces;
  std::vector<GgufResult> results;  // of each text
};

namespace gguf_goldens {
#include "tests/goldens/gguf_tokenizer.inc"
}

GgufTokenizer unigram_metadata(const GgufGolden& golden) {
  GgufTokenizer metadata{.model = "t5"};
  for (const GgufPiece& piece : gguf_goldens::pieces) {
    metadata.tokens.emplace_back(piece.text);
    metadata.token_type.push_back(piece.type);
    metadata.scores.push_back(piece.score);
  }
  metadata.add_space_prefix = golden.add_space_prefix;
  metadata.remove_extra_whitespaces = golden.remove_extra_whitespaces;
  metadata.precompiled_charsmap = from_base64(std::string(gguf_goldens::charsmap));
  return metadata;
}

void check_gguf_golden(const BpeParts& parts, const GgufGolden& golden) {
  const BpeTokenizer tokenizer(parts);
  for (size_t i = 0; i < std::size(gguf_goldens::texts); ++i) {
    CAPTURE(gguf_goldens::texts[i]);
    const auto& [ids, plain] = golden.results[i];
    CHECK(tokenizer.encode(gguf_goldens::texts[i]) == ids);
    CHECK(tokenizer.encode(gguf_goldens::texts[i], false) == (plain == same ? ids : plain));
  }
}

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

TEST_CASE("gguf tokenizer: a unigram model makes llama.cpp's tokens, also when written") {
  for (const GgufGolden& golden : gguf_goldens::goldens) {
    CAPTURE(golden.add_space_prefix);
    CAPTURE(golden.remove_extra_whitespaces);
    const BpeParts parts = from_gguf(unigram_metadata(golden));
    check_gguf_golden(parts, golden);
    const GgufTokenizer again = to_gguf(parts);
    CHECK(again.model == "t5");
    CHECK(again.add_space_prefix == golden.add_space_prefix);
    CHECK(again.remove_extra_whitespaces == golden.remove_extra_whitespaces);
    check_gguf_golden(from_gguf(again), golden);
  }
}

TEST_CASE("gguf tokenizer: what llama.cpp takes for a unigram model that does not say it") {
  GgufTokenizer metadata = unigram_metadata(gguf_goldens::goldens[0]);
  metadata.add_space_prefix.reset();
  const BpeTokenizer bare(from_gguf(metadata));
  auto around = bare.encode("a b");
  around.push_back(1);
  CHECK(bare.encode("a b", true, true) == around);
  CHECK(bare.eos() == 1);
  CHECK(bare.parts().pad == 0);
  CHECK(bare.encode("\u4e2d\u4e2e") == std::vector<int32_t>{2});
  CHECK(bare.decode(bare.encode(" a")) == " a");
  metadata.add_eos_token = false;
  metadata.add_bos_token = true;
  metadata.bos_token_id = 3;
  metadata.unknown_token_id = 0;
  metadata.add_space_prefix = true;
  const BpeTokenizer other(from_gguf(metadata));
  CHECK(other.encode("\u4e2d", true, true).front() == 3);
  CHECK(other.encode("\u4e2d").back() == 0);
  CHECK(other.decode(other.encode(" a")) == " a");
  metadata.escape_whitespaces = false;
  CHECK(BpeTokenizer(from_gguf(metadata)).encode("a a") !=
        BpeTokenizer(from_gguf(unigram_metadata(gguf_goldens::goldens[0]))).encode("a a"));
  CHECK(to_gguf(from_gguf(metadata)).escape_whitespaces == false);

  // A token that is not found in texts is not found there when special tokens are text, either.
  const BpeTokenizer plain(from_gguf(unigram_metadata(gguf_goldens::goldens[0])));
  CHECK(plain.encode("</s>") == std::vector<int32_t>{1});
  CHECK(std::ranges::count(plain.encode("</s>", false), 1) == 0);
}

TEST_CASE("gguf tokenizer: a text that ends with eos says so") {
  auto metadata = byte_model({"a b"});
  metadata.add_eos_token = true;
  const BpeParts parts = from_gguf(metadata);
  CHECK(parts.suffix == std::vector<int32_t>{*metadata.eos_token_id});
  CHECK(to_gguf(parts).add_eos_token == true);
  metadata.add_eos_token.reset();
  CHECK(from_gguf(metadata).suffix.empty());
  BpeParts other = parts;
  other.prefix = {1};
  CHECK_THROWS_AS(to_gguf(other), ValueError);
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
  CHECK(parts.tokens.back().text == "  ");
}

TEST_CASE("gguf tokenizer: blanks as an added token are found beside U+2581, which is none") {
  const std::string mark = piece_mark;
  auto metadata = pieces({{"a", -1}, {mark, -2}});
  metadata.tokens.emplace_back("  ");
  metadata.token_type.push_back(4);
  metadata.scores.push_back(0);
  metadata.add_space_prefix = false;
  const BpeTokenizer one(from_gguf(metadata));
  CHECK(words(one, "a  a") == Words{"a", "  ", "a"});
  CHECK(words(one, "a " + mark + "a") == Words{"a", mark, mark, "a"});
  CHECK(words(one, mark + mark) == Words{mark, mark});
  CHECK(words(one, mark + "  ") == Words{mark, "  "});
  CHECK(one.decode(one.encode("a  a")) == "a  a");
  // Beside a piece of two marks.
  metadata.tokens.push_back(mark + mark);
  metadata.token_type.push_back(1);
  metadata.scores.push_back(-3);
  const BpeTokenizer both(from_gguf(metadata));
  CHECK(words(both, "  " + mark + " a") == Words{"  ", mark + mark, "a"});
  CHECK(to_gguf(both.parts()).tokens == metadata.tokens);
  // An added token of marks, as tokenizer.json has it, is one of blanks, unless there is such a
  // one.
  BpeParts parts = both.parts();
  parts.tokens.back().type = TokenType::user_defined;
  CHECK(to_gguf(parts).tokens.back() == mark + mark);
  parts.tokens[parts.tokens.size() - 2].text = "b";
  CHECK(to_gguf(parts).tokens.back() == "  ");
}

TEST_CASE("gguf tokenizer: patterns under all names that llama.cpp has for them") {
  auto metadata = byte_model({"a b"});
  const auto parts_of = [&](const char* pre) {
    metadata.pre = pre;
    return from_gguf(metadata);
  };
  const std::pair<const char*, const char*> same_names[] = {
      {"deepseek-r1-qwen", "qwen2"}, {"megrez", "qwen2"},         {"llama-v3", "llama-bpe"},
      {"falcon3", "llama-bpe"},      {"pixtral", "llama-bpe"},    {"phi-2", "gpt-2"},
      {"exaone4", "gpt-2"},          {"codeshell", "smollm"},     {"minerva-7b", "smollm"},
      {"glm4", "chatglm-bpe"},       {"smaug-bpe", "chatglm-bpe"}};
  for (const auto& [name, usual] : same_names) {
    CAPTURE(name);
    const BpeParts a = parts_of(name), b = parts_of(usual);
    REQUIRE(a.splits.size() == b.splits.size());
    for (size_t i = 0; i < a.splits.size(); ++i) CHECK(a.splits[i].pattern == b.splits[i].pattern);
    CHECK(a.normalizers == b.normalizers);
    CHECK(a.ignore_merges == b.ignore_merges);
    CHECK(a.add_bos == b.add_bos);
    CHECK(to_gguf(a).pre == usual);
  }
  CHECK(to_gguf(parts_of("tekken")).pre == "tekken");
  CHECK(parts_of("tekken").add_bos);
  CHECK(words(BpeTokenizer(parts_of("deepseek-coder")), "ab12\n") == Words{"ab", "1", "2"});
  const auto cut = [](const char* pre, std::string_view text) {
    auto metadata = byte_model({"1 2", "12 3", "123 4", "b A", "a bA"});
    metadata.pre = pre;
    return words(BpeTokenizer(from_gguf(metadata)), text);
  };
  CHECK(cut("gpt-4o", "abA1234") == Words{"a", "b", "A", "123", "4"});
  CHECK(cut("deepseek-v3", "abA1234") == Words{"abA", "123", "4"});
  CHECK(cut("seed-coder", "abA1234") == Words{"abA", "1", "2", "3", "4"});
  CHECK(cut("minicpm5", "abA1234") == Words{"abA", "123", "4"});
}

TEST_CASE("gguf tokenizer: several tokens without a text, and a third token that ends texts") {
  auto metadata = byte_model({"a b"});
  metadata.tokens[3] = metadata.tokens[5] = "";
  metadata.eot_token_id = 7;
  metadata.eom_token_id = 8;
  const BpeParts parts = from_gguf(metadata);
  CHECK(parts.tokens[3].text == "[EMPTY_3]");
  CHECK(parts.tokens[5].text == "[EMPTY_5]");
  CHECK(parts.eos == std::vector<int32_t>{*metadata.eos_token_id, 7, 8});
  BpeParts turned = parts;
  turned.eos = {8, 7, *metadata.eos_token_id};
  const GgufTokenizer again = to_gguf(turned);
  CHECK(again.eos_token_id == metadata.eos_token_id);
  CHECK(again.eot_token_id == 8);
  CHECK(again.eom_token_id == 7);
}

TEST_CASE("gguf tokenizer: tokens that end a generated text") {
  auto metadata = byte_model({"a b"});
  const int32_t end = *metadata.eos_token_id;
  CHECK(from_gguf(metadata).eos == std::vector<int32_t>{end});
  // llama.cpp knows some by their texts, whatever ids and types the file has.
  metadata.tokens[3] = "<|eot_id|>", metadata.tokens[4] = "<end_of_turn>";
  CHECK(from_gguf(metadata).eos == std::vector<int32_t>{end, 4, 3});
  metadata.tokens[5] = "<|end|>", metadata.tokens.back() = "<|stop|>";
  CHECK(from_gguf(metadata).eos == std::vector<int32_t>{end, 4, 5, 3});
  // An answer goes on behind the end of a message.
  metadata.tokens[6] = "<|return|>", metadata.tokens[7] = "<|call|>";
  CHECK(from_gguf(metadata).eos == std::vector<int32_t>{end, 4, 7, 3, 6});
  // The ids of a tokenizer come back, be they more than three or fewer than by texts.
  BpeParts many = from_gguf(byte_model({"a b"}));
  many.eos = {end, 9, 10, 11, 12};
  CHECK(from_gguf(to_gguf(many)).eos == many.eos);
  many.eos = {9};
  CHECK(from_gguf(to_gguf(many)).eos == many.eos);
  CHECK(to_gguf(from_gguf(byte_model({"a b"}))).eos_token_ids.empty());
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

  auto unigram = unigram_metadata(gguf_goldens::goldens[0]);
  unigram.precompiled_charsmap = "abc";
  refused(unigram);
  unigram = unigram_metadata(gguf_goldens::goldens[0]);
  unigram.unknown_token_id = 100'000;
  refused(unigram);
  unigram = unigram_metadata(gguf_goldens::goldens[0]);
  unigram.scores.pop_back();
  refused(unigram);

  BpeParts parts = from_gguf(good);
  parts.splits[0].pattern = "a";
  CHECK_THROWS_AS(to_gguf(parts), ValueError);
  parts = from_gguf(unigram_metadata(gguf_goldens::goldens[0]));
  parts.normalizers[0].kind = Normalization::charsmap;
  CHECK_THROWS_AS(to_gguf(parts), ValueError);
  parts = from_gguf(unigram_metadata(gguf_goldens::goldens[0]));
  parts.metaspace = true;
  CHECK_THROWS_AS(to_gguf(parts), ValueError);
}

TEST_SUITE_END();
