// The tokenizer against goldens/tokenizer.inc, which an independent Python program wrote.
#include <doctest/doctest.h>
#include <unicode/uchar.h>

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/text/tokenizer.h"
#include "data/text/tokenizer_training.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace std::literals;

namespace {

namespace tokenizer_goldens {
struct Golden {
  std::string_view text, lower, cased, published;
};
struct FileGolden {
  const char* file;
  int tokens;
  uint64_t hash;
};
#include "tests/goldens/tokenizer.inc"
}  // namespace tokenizer_goldens

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

const Vocabulary& small_vocab() {
  static const Vocabulary vocabulary(split_words(tokenizer_goldens::small_vocabulary));
  return vocabulary;
}

std::string tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::string joined;
  for (const int32_t id : tokenizer.ids(text))
    joined += (joined.empty() ? "" : " ") + tokenizer.vocabulary().token(id);
  return joined;
}

struct Hash {
  uint64_t value = 0xCBF29CE484222325;
  void add(uint8_t byte) { value = (value ^ byte) * 0x100000001B3; }
};

// See every_character() of the generator, whose Python knows the characters of Unicode 14. Later
// versions of ICU may know some of them differently.
uint64_t every_character(bool lower) {
  Hash hash;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const auto category = u_charType(static_cast<UChar32>(c));
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(c), age);
    if (category == U_UNASSIGNED || category == U_SURROGATE || age[0] > 14) continue;
    std::string it, text;
    append_utf8(it, c);
    text = "Ab" + it + "c\u0323Σ" + it + " " + it + "Σ";
    for_each_word(text, lower, [&](std::span<const Character> word) {
      std::string bytes;
      for (const Character& character : word) append_utf8(bytes, character.code);
      for (const char byte : bytes + '\n') hash.add(static_cast<uint8_t>(byte));
    });
  }
  return hash.value;
}

std::string vocabulary_fault(const std::string& vocabulary) {
  const TemporaryFolder folder;
  write_file(folder / "vocab.txt", vocabulary);
  try {
    Vocabulary::load(folder / "vocab.txt");
  } catch (const FileError& error) {
    return error.what();
  }
  return "no FileError";
}

const std::string special_lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("tokenizer: the tokens of the reference") {
  const Tokenizer lower(small_vocab()), cased(small_vocab(), {.lower_case = false});
  for (const tokenizer_goldens::Golden& golden : tokenizer_goldens::goldens) {
    CAPTURE(golden.text);
    CHECK(tokens_of(lower, golden.text) == golden.lower);
    CHECK(tokens_of(cased, golden.text) == golden.cased);
  }
}

TEST_CASE("tokenizer: words of every character of Unicode 14") {
  CHECK(every_character(true) == tokenizer_goldens::every_character_lower);
  CHECK(every_character(false) == tokenizer_goldens::every_character_cased);
}

TEST_CASE("tokenizer: the published vocabulary and real texts, where REWIND_DATA has them") {
  const char* data = std::getenv("REWIND_DATA");
  if (!data) {
    MESSAGE("skipped: REWIND_DATA names no folder with text/ and sst2/");
    return;
  }
  const std::filesystem::path folder = data;
  const Tokenizer tokenizer(Vocabulary::load(folder / "text/bert-base-uncased-vocab.txt"));
  for (const tokenizer_goldens::Golden& golden : tokenizer_goldens::goldens) {
    CAPTURE(golden.text);
    CHECK(tokens_of(tokenizer, golden.text) == golden.published);
  }
  for (const tokenizer_goldens::FileGolden& golden : tokenizer_goldens::file_goldens) {
    CAPTURE(golden.file);
    const auto bytes = read_file(folder / golden.file);
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    Hash hash;
    int tokens = 0;
    for (std::string line; std::getline(lines, line);) {
      for (const int32_t id : tokenizer.ids(line)) {
        ++tokens;
        for (int shift = 0; shift < 32; shift += 8) hash.add(static_cast<uint8_t>(id >> shift));
      }
    }
    CHECK(tokens == golden.tokens);
    CHECK(hash.value == golden.hash);
  }
}

TEST_CASE("tokenizer: options") {
  CHECK(tokens_of(Tokenizer(small_vocab(), {.special_tokens = false}), "a[MASK]b") ==
        "a [ m ##a ##s ##k ] b");
  const Tokenizer hundred(small_vocab(), {.max_input_chars = 100});
  CHECK(hundred.ids(std::string(100, 'x')).size() == 100);
  CHECK(tokens_of(hundred, std::string(101, 'x')) == "[UNK]");
  CHECK_THROWS_AS(Tokenizer(small_vocab(), {.max_input_chars = 0}), ValueError);
}

TEST_CASE("tokenizer: bytes that are not UTF-8 are left out") {
  const Tokenizer tokenizer(small_vocab());
  CHECK(tokens_of(tokenizer, "a\xFF\xFE b\xC3") == "a b");
  CHECK(tokens_of(tokenizer, "\xED\xA0\x80run\xC0\xAFning") == "running");  // surrogate, overlong
  CHECK(tokens_of(tokenizer, "\xF4\x90\x80\x80 the \xE2\x82") == "the");    // above U+10FFFF, cut
  uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    std::string noise;
    for (int j = 0; j < 40; ++j)
      noise += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    for (const Token& token : tokenizer.tokenize(noise)) {
      REQUIRE(token.begin < token.end);
      REQUIRE(token.end <= noise.size());
    }
  }
}

TEST_CASE("tokenizer: encode, offsets, decode") {
  const Tokenizer tokenizer(small_vocab());
  const Vocabulary& v = small_vocab();
  const std::string text = "Caf\u00e9, unwanted [MASK] 中國";
  const Encoding one = tokenizer.encode(text);
  std::vector<std::string> parts;
  for (size_t i = 1; i + 1 < one.ids.size(); ++i)
    parts.push_back(
        text.substr(one.offsets[i].first, one.offsets[i].second - one.offsets[i].first));
  CHECK(parts ==
        std::vector<std::string>{"Caf\u00e9", ",", "un", "want", "ed", "[MASK]", "中", "國"});
  CHECK(one.ids.front() == v.cls);
  CHECK(one.ids.back() == v.sep);
  CHECK(one.ids[6] == v.mask);
  CHECK(one.ids[8] == v.unk);
  CHECK(tokenizer.decode(one.ids) == "cafe , unwanted 中");
  CHECK(tokenizer.decode(one.ids, false) == "[CLS] cafe , unwanted [MASK] 中 [UNK] [SEP]");
  CHECK(tokenizer.encode(text, 4).ids ==
        std::vector<int32_t>{v.cls, v.id("cafe"), v.id(","), v.sep});
  CHECK(tokenizer.encode("", 2).ids == std::vector<int32_t>{v.cls, v.sep});
  CHECK_THROWS_AS(tokenizer.encode(text, 1), ValueError);

  const Encoding pair = tokenizer.encode_pair("the a", "b c d e");
  CHECK(tokenizer.decode(pair.ids, false) == "[CLS] the a [SEP] b c d e [SEP]");
  CHECK(pair.token_types == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1, 1});
  CHECK(pair.offsets[4] == std::pair<size_t, size_t>(0, 1));
  const auto cut = [&](const char* a, const char* b, int length, Truncation truncation) {
    return tokenizer.decode(tokenizer.encode_pair(a, b, length, truncation).ids, false);
  };
  CHECK(cut("a b c d e", "f g", 7, Truncation::longest_first) == "[CLS] a b [SEP] f g [SEP]");
  CHECK(cut("a b c", "d e f", 8, Truncation::longest_first) == "[CLS] a b c [SEP] d e [SEP]");
  CHECK(cut("a b c d e", "f g h", 9, Truncation::only_second) == "[CLS] a b c d e [SEP] f [SEP]");
  CHECK(cut("a b c d e", "f g h", 9, Truncation::only_first) == "[CLS] a b c [SEP] f g h [SEP]");
  CHECK_THROWS_AS(cut("a b c d e", "f", 7, Truncation::only_second), ValueError);
}

TEST_CASE("vocabulary: files that are none") {
  CHECK(vocabulary_fault("").c_str() == doctest::Contains("[PAD] is missing"));
  CHECK(vocabulary_fault("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n").c_str() ==
        doctest::Contains("[MASK] is missing"));
  CHECK(vocabulary_fault(special_lines + "a\nb\na\n").c_str() ==
        doctest::Contains("token 8 is there a second time"));
  CHECK(vocabulary_fault(special_lines + "\na\n").c_str() == doctest::Contains("token 6 is empty"));
  CHECK(vocabulary_fault(special_lines + "a\xFF\n").c_str() ==
        doctest::Contains(":6 must be UTF-8, got the byte 0xff as byte 2 of the line"));
  CHECK(vocabulary_fault(special_lines + "the\t12\n").c_str() ==
        doctest::Contains("token 6 holds a tab"));
  CHECK(vocabulary_fault(special_lines + "a"s + '\0' + "\n").c_str() ==
        doctest::Contains(":6 must be a text file, but has NUL bytes"));
  CHECK_THROWS_AS(Vocabulary::load("/no/such/file"), FileError);
  CHECK_THROWS_AS(Vocabulary({"a"}), ValueError);
  CHECK_THROWS_AS(small_vocab().token(small_vocab().size()), ValueError);
}

TEST_CASE("vocabulary: written and read back, with either line ending") {
  const TemporaryFolder folder;
  small_vocab().save(folder / "vocab.txt");
  const std::vector<uint8_t> bytes = read_file(folder / "vocab.txt");
  write_file(folder / "vocab.txt", "\xef\xbb\xbf" + std::string(bytes.begin(), bytes.end()));
  const Vocabulary read = Vocabulary::load(folder / "vocab.txt");
  REQUIRE(read.size() == small_vocab().size());
  for (int64_t id = 0; id < read.size(); ++id) CHECK(read.token(id) == small_vocab().token(id));
  write_file(folder / "windows.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na"sv);
  CHECK(Vocabulary::load(folder / "windows.txt").id("a") == 5);
}

TEST_CASE("train_vocabulary: merges by frequency") {
  // hug 10, pug 5, pun 12, bun 4, hugs 5: "##u ##g" 20, "##u ##n" 16, "h ##ug" 15, ...
  std::string line;
  for (const auto& [word, count] :
       {std::pair("hug", 10), {"Pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}})
    for (int i = 0; i < count; ++i) line += word + " "s;
  const std::vector<Document> text{{line}};
  const Vocabulary v = train_vocabulary(text, {.size = 18});
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < v.size(); ++id) tokens.push_back(v.token(id));
  CHECK(tokens == split_words("[PAD] [UNK] [CLS] [SEP] [MASK] b h p ##g ##n ##s ##u "
                              "##ug ##un hug pun pug hugs"));
  CHECK(train_vocabulary(text, {.size = 1000, .min_frequency = 11}).size() == 16);
  CHECK(train_vocabulary(text, {.size = 1000}).size() == 19);  // and bun
  CHECK(train_vocabulary(text, {.size = 1000, .max_alphabet = 3}).id("b") == -1);
  CHECK_THROWS_AS(train_vocabulary(text, {.size = 11}), ValueError);
  CHECK_THROWS_AS(train_vocabulary({}, {}), ValueError);
}

TEST_SUITE_END();
