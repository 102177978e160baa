// Added tokens of all kinds, gaps between ids, normal forms, tokens around a text, and unigram
// models against goldens/unigram.inc, which Hugging Face's tokenizers wrote.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unicode/uchar.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/base64.h"
#include "data/base/files.h"
#include "data/base/text_normalizer.h"
#include "data/base/unicode.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/gguf_tokenizer.h"
#include "tests/data/bpe_fixture.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using namespace std::literals;
using nlohmann::json;
using test::contains;

namespace {

// A normalizer; whether it sees only the characters of Unicode 3.2; the hash of what it makes of
// all characters, a line each.
struct NormalizerGolden {
  std::string_view step;
  bool is_old;
  uint64_t hash;
};

// A regular expression, or an empty text; a text in which "-" replaces its matches; the result.
struct ReplaceGolden {
  std::string_view pattern, text, result;
};

namespace unigram_goldens {
#include "tests/goldens/unigram.inc"
}

json unigram_json(const BpeGolden& golden) {
  return golden_json(unigram_goldens::bases, golden);
}

json unigram_json(std::string_view name) {
  return unigram_json(*std::ranges::find(unigram_goldens::goldens, name, &BpeGolden::name));
}

BpeTokenizer load_unigram(const json& tokenizer) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", tokenizer.dump());
  return BpeTokenizer::load(folder.path);
}

void check_unigram_golden(const BpeTokenizer& tokenizer, const BpeGolden& golden) {
  CAPTURE(golden.name);
  for (size_t i = 0; i < std::size(unigram_goldens::texts); ++i) {
    const std::string_view text = unigram_goldens::texts[i];
    CAPTURE(text);
    const BpeResult& wanted = golden.results[i];
    CHECK(tokenizer.encode(text) == wanted.ids);
    CHECK(tokenizer.encode(text, false) == wanted.of(wanted.plain));
    CHECK(tokenizer.encode(text, true, true) == wanted.of(wanted.around));
    CHECK(to_valid_utf8(tokenizer.decode(wanted.ids)) == wanted.text);
    CHECK(to_valid_utf8(tokenizer.decode(wanted.ids, true)) == wanted.words);
  }
}

std::string unigram_fault(const json& patch) {
  json whole = unigram_json("unigram");
  whole.merge_patch(patch);
  return test::fault_of([&] { load_unigram(whole); });
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("unigram tokenizer: ids and texts of the reference, also when saved") {
  for (const BpeGolden& golden : unigram_goldens::goldens) {
    const BpeTokenizer tokenizer = load_unigram(unigram_json(golden));
    check_unigram_golden(tokenizer, golden);
    const TemporaryFolder folder;
    tokenizer.save(folder.path);
    check_unigram_golden(BpeTokenizer::load(folder.path), golden);
  }
}

TEST_CASE("unigram tokenizer: normalizers change all characters as the reference") {
  std::string old, everything;
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string line;
    append_utf8(line, code);
    line += '\n';
    everything += line;
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(code), age);
    if (u_isdefined(static_cast<UChar32>(code)) && (age[0] < 3 || (age[0] == 3 && age[1] <= 2)))
      old += line;
  }
  for (const NormalizerGolden& golden : unigram_goldens::normalizers) {
    CAPTURE(golden.step);
    json whole = unigram_json("unigram");
    whole["normalizer"] = json::parse(golden.step);
    const TextNormalizer normalizer(load_unigram(whole).parts().normalizers);
    const std::string text = normalizer.normalised(golden.is_old ? old : everything);
    CHECK(fnv1a(std::as_bytes(std::span(text))) == golden.hash);
  }
}

TEST_CASE("unigram tokenizer: normalizers replace matches as the reference") {
  for (const ReplaceGolden& golden : unigram_goldens::replacements) {
    CAPTURE(golden.pattern);
    const TextNormalizer normalizer({{.kind = Normalization::replace,
                                      .pattern = std::string(golden.pattern),
                                      .content = "-",
                                      .literal = golden.pattern.empty()}});
    CHECK(normalizer.normalised(golden.text) == golden.result);
  }
}

TEST_CASE("unigram tokenizer: the tokens around a text are each asked for") {
  const auto tokenizer = load_unigram(unigram_json("roberta"));
  const std::vector<int32_t> ids = tokenizer.encode("a");
  CHECK(tokenizer.bos() == 1);
  CHECK(tokenizer.parts().suffix == std::vector<int32_t>{2});
  const auto with = [&](std::vector<int32_t> before, const std::vector<int32_t>& behind) {
    before.insert(before.end(), ids.begin(), ids.end());
    before.insert(before.end(), behind.begin(), behind.end());
    return before;
  };
  CHECK(tokenizer.encode("a", true, true, false) == with({1}, {}));
  CHECK(tokenizer.encode("a", true, false, true) == with({}, {2}));
  CHECK(tokenizer.encode("a", true, true) == with({1}, {2}));
  CHECK_THROWS_AS(to_gguf(tokenizer.parts()), ValueError);
}

TEST_CASE("unigram tokenizer: ids may have gaps") {
  const auto tokenizer = load_unigram(unigram_json("phi4"));
  CHECK(tokenizer.size() == 461);
  CHECK(tokenizer.id("<x>") == 440);
  CHECK_FALSE(tokenizer.id("").has_value());
  CHECK(tokenizer.token(443).empty());
  CHECK_FALSE(tokenizer.is_special(443));
  CHECK(tokenizer.decode(std::vector<int32_t>{443, *tokenizer.id("a"), 444}) == "a");
  const GgufTokenizer gguf = to_gguf(tokenizer.parts());
  CHECK(gguf.tokens[443] == "[PAD443]");
  CHECK(gguf.token_type[443] == static_cast<int32_t>(TokenType::unused));
}

TEST_CASE("unigram tokenizer: a character without a piece") {
  const auto unknown = load_unigram(unigram_json("unigram"));
  CHECK(unknown.encode("\u2603") == unknown.encode("\u2603\u2604"));  // a run of them is one
  json whole = unigram_json("unigram");
  whole["model"]["unk_id"] = nullptr;
  const auto strict = load_unigram(whole);
  CHECK(strict.encode("the") == unknown.encode("the"));
  CHECK_THROWS_WITH_AS(strict.encode("\u2603"), doctest::Contains("no token is unk_id"),
                       ValueError);
}

TEST_CASE("unigram tokenizer: malformed files") {
  CHECK(contains(unigram_fault({{"model", {{"vocab", json::array()}}}}), "must have pieces"));
  CHECK(contains(unigram_fault({{"model", {{"unk_id", 100'000}}}}), "unk_id"));
  CHECK(contains(
      unigram_fault(
          {{"model",
            {{"unk_id", 0},
             {"vocab", json::array({json::array({"a", 0.5}), json::array({"a", 0.5})})}}}}),
      "must differ"));
  CHECK(contains(
      unigram_fault({{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}}}),
      "must have a trie"));
  CHECK(contains(
      unigram_fault({{"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "A?=="}}}}),
      "64 characters"));
  CHECK(contains(
      unigram_fault(
          {{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}}}}),
      "regular expression"));
  const json two = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const auto around = [&](const json& single, const json& ids) {
    return unigram_fault({{"post_processor",
                           {{"type", "TemplateProcessing"},
                            {"single", single},
                            {"special_tokens", {{"</s>", {{"ids", ids}}}}}}}});
  };
  const auto text = [](const char* id) { return json{{"Sequence", {{"id", id}}}}; };
  CHECK(contains(around({text("A"), text("A")}, {1}), "post-processor"));
  CHECK(contains(around({two, text("B")}, {1}), "post-processor"));
  CHECK(contains(around({two, text("A")}, {-1}), "whole number"));
  CHECK(contains(around({two, text("A")}, {1, 100'000}), "ids around a text"));
  CHECK(contains(around({text("A"), two}, {100'000}), "ids around a text"));
  CHECK(contains(
      unigram_fault({{"post_processor", {{"type", "TemplateProcessing"}, {"single", {two, two}}}}}),
      "post-processor"));
}

TEST_CASE("unigram tokenizer: a table of characters that points anywhere") {
  // Each word of the trie and each byte of the texts in turn: a FileError or a text, and nothing
  // else.
  for (uint32_t word : {0u, 1u, 0x161u, 0x3FFu, 0x80000061u, 0x1FF61u, ~0u})
    for (const size_t words : {1u, 2u, 98u, 256u}) {
      std::string table(4, '\0');
      table[0] = static_cast<char>(4 * words & 255), table[1] = static_cast<char>(4 * words >> 8);
      for (size_t i = 0; i < words; ++i)
        for (int byte = 0; byte < 4; ++byte) table += static_cast<char>(word >> (8 * byte) & 255);
      for (const auto kind : {Normalization::charsmap, Normalization::charsmap_longest}) {
        const TextNormalizer normalizer({{.kind = kind, .pattern = table + "xyz"}});
        CHECK(is_valid_utf8(normalizer.normalised("abc \u00e9")));
      }
    }
}

TEST_CASE("base64: bytes of every length") {
  CHECK(to_base64("") == "");
  CHECK(to_base64("M") == "TQ==");
  CHECK(to_base64("Ma") == "TWE=");
  CHECK(to_base64("Man") == "TWFu");
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i * 7);
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  for (const char* text : {"T", "TQ=", "TQ", "T===", "T\n==", "====", "TQ==TQ=="})
    CHECK_THROWS_AS(from_base64(text), FileError);
}

TEST_SUITE_END();
