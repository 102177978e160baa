// Byte-pair tokenizers against goldens/bpe.inc, which Hugging Face's tokenizers wrote.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <thread>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/base/unicode.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"
#include "tests/data/bpe_fixture.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using namespace std::literals;
using nlohmann::json;
using test::contains;

namespace {

namespace bpe_goldens {
#include "tests/goldens/bpe.inc"
}

json golden_json(const BpeGolden& golden) {
  return golden_json(bpe_goldens::bases, golden);
}

const BpeGolden& golden(std::string_view name) {
  return *std::ranges::find(bpe_goldens::goldens, name, &BpeGolden::name);
}

// Loads it from a folder, with files beside it.
BpeTokenizer load_parts(const json& tokenizer, const json& config = json::object(),
                        const json& generation = nullptr, const json& model = nullptr,
                        const json& specials = nullptr) {
  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", tokenizer.dump());
  const std::pair<const char*, const json*> others[] = {{"tokenizer_config.json", &config},
                                                        {"generation_config.json", &generation},
                                                        {"config.json", &model},
                                                        {"special_tokens_map.json", &specials}};
  for (const auto& [name, value] : others)
    if (!value->is_null()) write_file(folder / name, value->dump());
  return BpeTokenizer::load(folder.path);
}

BpeTokenizer named(std::string_view name) {
  return load_parts(golden_json(golden(name)));
}

void check_bpe_golden(const BpeTokenizer& tokenizer, const BpeGolden& golden) {
  CAPTURE(golden.name);
  for (size_t i = 0; i < std::size(bpe_goldens::texts); ++i) {
    CAPTURE(bpe_goldens::texts[i]);
    const BpeResult& wanted = golden.results[i];
    CHECK(tokenizer.encode(bpe_goldens::texts[i]) == wanted.ids);
    CHECK(tokenizer.encode(bpe_goldens::texts[i], false) == wanted.of(wanted.plain));
    CHECK(tokenizer.encode(bpe_goldens::texts[i], true, true) == wanted.of(wanted.around));
    CHECK(to_valid_utf8(tokenizer.decode(wanted.ids)) == wanted.text);
    CHECK(to_valid_utf8(tokenizer.decode(wanted.ids, true)) == wanted.words);
  }
}

// The FileError of the base with a patch.
std::string patch_fault(int base, const json& patch) {
  json whole = json::parse(bpe_goldens::bases[base]);
  whole.merge_patch(patch);
  try {
    load_parts(whole);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no FileError";
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("bpe tokenizer: ids and texts of the reference") {
  for (const BpeGolden& golden : bpe_goldens::goldens)
    check_bpe_golden(load_parts(golden_json(golden)), golden);
}

TEST_CASE("bpe tokenizer: what is saved is the same tokenizer") {
  const TemporaryFolder folder;
  for (const BpeGolden& golden : bpe_goldens::goldens) {
    const json whole = golden_json(golden);
    const auto a_token = load_parts(whole).token(0);  // one that need not be added
    json special = {{"content", a_token}, {"special", true}};
    for (const json& added : whole.value("added_tokens", json::array())) special = added;
    const auto tokenizer = load_parts(whole, {{"eos_token", special["content"]},
                                              {"pad_token", {{"content", special["content"]}}},
                                              {"chat_template", "{{ 'é' }}"}});
    tokenizer.save(folder.path);
    const auto again = BpeTokenizer::load(folder.path);
    check_bpe_golden(again, golden);
    CHECK(again.bos() == tokenizer.bos());
    CHECK(again.eos() == tokenizer.eos());
    CHECK(again.parts().pad == tokenizer.parts().pad);
    CHECK(again.parts().add_bos == tokenizer.parts().add_bos);
    CHECK(again.parts().chat_template == "{{ 'é' }}");
  }
}

TEST_CASE("bpe tokenizer: special tokens come from the files beside it") {
  const json llama = golden_json(golden("llama2"));
  const auto plain = load_parts(llama, nullptr);
  CHECK(plain.bos() == 1);
  CHECK(plain.parts().add_bos);
  CHECK_FALSE(plain.eos().has_value());
  CHECK_FALSE(plain.is_eos(2));
  CHECK(plain.encode("a", true, true).front() == 1);
  CHECK(plain.encode("a", true, false) == plain.encode("a"));
  CHECK(plain.is_special(0));
  CHECK_FALSE(plain.is_special(5));
  CHECK(plain.id("</s>") == 2);
  CHECK(plain.token(2) == "</s>");
  CHECK_FALSE(plain.id("no such token").has_value());

  const auto ended = load_parts(llama, {{"eos_token", "</s>"}}, {{"eos_token_id", {2, 1, 7}}});
  CHECK(ended.eos() == 2);
  CHECK(ended.parts().eos == std::vector<int32_t>{2, 1, 7});
  CHECK(ended.is_eos(7));
  CHECK(load_parts(llama, nullptr, {{"eos_token_id", 7}}).eos() == 7);
  CHECK_THROWS_AS(load_parts(llama, nullptr, {{"eos_token_id", 1'000'000'000}}), FileError);
  CHECK_THROWS_AS(load_parts(llama, json::array()), FileError);

  const auto qwen = load_parts(golden_json(golden("qwen2")), {{"bos_token", "<|im_start|>"}});
  CHECK(qwen.bos() == 1);
  CHECK(qwen.encode("a", true, true) == qwen.encode("a"));  // nothing says that it adds one
  CHECK(load_parts(golden_json(golden("qwen2")), {{"bos_token", nullptr}}).bos() == std::nullopt);
  const json templates = {{{"name", "tool_use"}, {"template", "a"}},
                          {{"name", "default"}, {"template", "b"}}};
  CHECK(load_parts(llama, {{"chat_template", templates}}).parts().chat_template == "b");

  const TemporaryFolder folder;
  write_file(folder / "tokenizer.json", llama.dump());
  write_file(folder / "special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  write_file(folder / "tokenizer_config.json", R"({"chat_template": "a"})");
  write_file(folder / "chat_template.jinja", "c");
  const auto mapped = BpeTokenizer::load(folder / "tokenizer.json");
  CHECK(mapped.eos() == 2);
  CHECK(mapped.parts().chat_template == "c");
}

TEST_CASE("bpe tokenizer: a generated text ends where the model's files say") {
  const json llama = golden_json(golden("llama2"));
  const auto ends = [&](const json& tokenizer, const json& generation, const json& model) {
    return load_parts(llama, tokenizer, generation, model).parts().eos;
  };
  using Ids = std::vector<int32_t>;
  const json named = {{"eos_token", "</s>"}}, list = {{"eos_token_id", {7, 5}}},
             one = {{"eos_token_id", 9}}, none = {{"eos_token_id", nullptr}},
             old = {{"eos_token_id", -1}};
  CHECK(ends(nullptr, nullptr, list) == Ids{7, 5});
  CHECK(ends(named, nullptr, list) == Ids{7, 5});
  CHECK(ends(named, one, list) == Ids{9});
  CHECK(ends(named, none, one) == Ids{9});
  CHECK(ends(named, json::object(), old) == Ids{2});
  CHECK(ends(named, nullptr, nullptr) == Ids{2});
  CHECK(ends(nullptr, nullptr, none).empty());
  const auto tokenizer = load_parts(llama, named, nullptr, one);
  CHECK(tokenizer.eos() == 2);  // documents end with it
  CHECK(tokenizer.is_eos(9));
  CHECK_FALSE(tokenizer.is_eos(2));
  CHECK_THROWS_AS(ends(nullptr, nullptr, {{"eos_token_id", "2"}}), FileError);
}

// The ids are those of transformers 5.24 for a tokenizer.json with <s>, </s> and <x> behind the 256
// bytes of GPT-2's alphabet.
TEST_CASE("bpe tokenizer: tokens that only the files beside it have") {
  json whole = {{"added_tokens", json::array()},
                {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                {"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}}};
  const BpeParts bytes = train_bpe({}, {.size = 256, .special_tokens = {}});
  for (size_t id = 0; id < 256; ++id) whole["model"]["vocab"][bytes.tokens[id].text] = id;
  for (const char* text : {"<s>", "</s>", "<x>"})
    whole["added_tokens"].push_back(
        {{"content", text}, {"special", text[1] != 'x'}, {"normalized", false}});
  const auto entry = [](const char* text, bool special, bool lstrip = false) {
    return json{{"content", text}, {"special", special}, {"normalized", false}, {"lstrip", lstrip}};
  };
  const auto added = [&](const json& config, const char* text, const json& specials = nullptr) {
    return load_parts(whole, config, nullptr, nullptr, specials).encode(text);
  };
  using Ids = std::vector<int32_t>;
  const json listed = {
      {"added_tokens_decoder", {{"259", entry("<b>", true)}, {"300", entry("<a>", false)}}}};
  CHECK(added(listed, "<x><b><a>") == Ids{258, 259, 260});
  CHECK(load_parts(whole, listed).is_special(259));
  CHECK_FALSE(load_parts(whole, listed).is_special(260));
  const json other = {{"added_tokens_decoder", {{"258", entry("<x>", true, true)}}}};
  CHECK(added(other, "  <x>") == Ids{258});
  CHECK(load_parts(whole, other).is_special(258));
  const json roles = {{"pad_token", "<pad>"}, {"eos_token", "<end>"}};
  CHECK(added(roles, "<pad><end>") == Ids{260, 259});
  CHECK(load_parts(whole, roles).parts().pad == 260);
  CHECK(added({{"additional_special_tokens", {"<e1>", "<x>"}}}, "<e1><x>") == Ids{259, 258});
  CHECK(added({{"extra_special_tokens", {{"image_token", "<img>"}}}}, "<img>") == Ids{259});
  CHECK(added({{"image_token", "<img>"}}, "<img>") == Ids{259});

  // The older map counts unless tokenizer_config.json lists the added tokens.
  const json map = {{"eos_token", {{"content", "</s>"}}}};
  const auto eos = [&](const json& config) {
    return load_parts(whole, config, nullptr, nullptr, map).eos();
  };
  CHECK(eos(json::object()) == 257);
  CHECK(eos({{"eos_token", "<s>"}}) == 257);
  CHECK(eos({{"eos_token", "<s>"}, {"added_tokens_decoder", json::object()}}) == 256);
  CHECK(added(json::object(), "<q>", {{"eos_token", {{"content", "<q>"}}}}) == Ids{259});
  for (const json& bad : {json{{"a", entry("<b>", true)}}, json{{"1", 2}}, json{{"-1", {}}}})
    CHECK_THROWS_AS(added({{"added_tokens_decoder", bad}}, ""), FileError);
}

TEST_CASE("bpe tokenizer: bytes that are not UTF-8 are read as Python's errors='replace'") {
  const auto tokenizer = named("qwen2");
  for (const auto& [bytes, text] : {std::pair{"a\xE2\x82z"sv, "a\uFFFDz"sv},
                                    {"\xF0\x9F\x98"sv, "\uFFFD"sv},
                                    {"\xED\xA0\x80"sv, "\uFFFD\uFFFD\uFFFD"sv},
                                    {"\xC0\x80\xFF"sv, "\uFFFD\uFFFD\uFFFD"sv}}) {
    CHECK(tokenizer.encode(bytes) == tokenizer.encode(text));
    CHECK(tokenizer.decode(tokenizer.encode(bytes)) == text);
  }
}

TEST_CASE("bpe tokenizer: tokens that come one by one give whole characters") {
  for (const BpeGolden& golden : bpe_goldens::goldens) {
    const auto tokenizer = load_parts(golden_json(golden));
    for (size_t i = 0; i < std::size(bpe_goldens::texts); ++i) {
      CAPTURE(bpe_goldens::texts[i]);
      StreamingDecoder all(tokenizer, false), words(tokenizer);
      std::string text, without;
      for (const int32_t id : golden.results[i].ids) {
        const std::string part = all.push(id);
        CHECK(is_valid_utf8(part));
        text += part;
        without += words.push(id);
      }
      text += all.finish();
      without += words.finish();
      CHECK(all.finish().empty());
      const bool has_space = tokenizer.parts().strip != SpaceStrip::none;
      CHECK(text.substr(has_space && text.starts_with(' ')) == golden.results[i].text);
      CHECK(without.substr(has_space && without.starts_with(' ')) == golden.results[i].words);
    }
  }
  StreamingDecoder cut(named("qwen2"));
  const auto smile = named("qwen2").encode("\U0001F600");
  REQUIRE(smile.size() > 1);
  CHECK(cut.push(smile[0]).empty());
  CHECK(cut.finish() == "\uFFFD");
}

TEST_CASE("bpe tokenizer: ids outside of it are errors") {
  const auto tokenizer = named("qwen2");
  const auto size = static_cast<int32_t>(tokenizer.size());
  CHECK(tokenizer.size() == 332);
  for (const int32_t id : {int32_t{-1}, size, int32_t{1'000'000'000}}) {
    CHECK_THROWS_AS(tokenizer.decode(std::vector{id}), ValueError);
    CHECK_THROWS_AS(tokenizer.token(id), ValueError);
    CHECK_THROWS_AS(StreamingDecoder(tokenizer).push(id), ValueError);
  }
}

TEST_CASE("bpe tokenizer: threads share one") {
  const auto tokenizer = named("qwen2");
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (bool& result : equal)
    threads.emplace_back([&] {
      result = true;
      for (size_t i = 0; i < std::size(bpe_goldens::texts); ++i)
        result &= tokenizer.encode(bpe_goldens::texts[i]) == golden("qwen2").results[i].ids;
    });
  for (std::thread& thread : threads) thread.join();
  for (const bool result : equal) CHECK(result);
}

TEST_CASE("bpe tokenizer: long words and long blanks") {
  const auto tokenizer = named("qwen2");
  for (const auto& [character, count] :
       {std::pair{'a', 300'000}, {' ', 1'000'000}, {'\n', 1'000'000}, {'.', 300'000}}) {
    const std::string text = std::string(static_cast<size_t>(count), character) + "x";
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("train_bpe: the merges of the reference") {
  const std::vector<std::string> lines(std::begin(bpe_goldens::train_lines),
                                       std::end(bpe_goldens::train_lines));
  const BpeParts trained = train_bpe(lines, {.size = 330});
  const BpeParts wanted = load_parts(json::parse(bpe_goldens::bases[0])).parts();
  CHECK(trained.merges == wanted.merges);
  REQUIRE(trained.tokens.size() == 330);  // the reference has two added ones behind
  for (size_t id = 0; id < 330; ++id) CHECK(trained.tokens[id].text == wanted.tokens[id].text);
  CHECK(trained.tokens[2].type == TokenType::control);
  CHECK(trained.eos == std::vector<int32_t>{0});

  const auto with = [&](BpeOptions options) { return train_bpe(lines, options); };
  CHECK(with({.size = 259}).merges.empty());
  CHECK(with({.size = 256, .special_tokens = {}}).eos.empty());
  CHECK(with({.size = 5000, .min_frequency = 1000}).merges.empty());
  CHECK(with({.size = 5000}).tokens.size() < 5000);  // every pair that is there twice
  CHECK(train_bpe({}).merges.empty());
  CHECK_THROWS_AS(with({.size = 258}), ValueError);
  CHECK_THROWS_AS(with({.min_frequency = 0}), ValueError);
  CHECK_THROWS_AS(with({.special_tokens = {"<s>", "<s>"}}), ValueError);
  CHECK_THROWS_AS(with({.special_tokens = {"a"}}), ValueError);
  CHECK_THROWS_AS(with({.pattern = "("}), FileError);
}

TEST_CASE("bpe tokenizer: of added tokens, the longest of the first place is found") {
  json whole = json::parse(bpe_goldens::bases[0]);
  const auto add = [&](const char* text, int id) {
    whole["added_tokens"].push_back(
        {{"id", id}, {"content", text}, {"special", false}, {"normalized", false}});
  };
  add("<a>", 332), add("<a><b>", 333), add("<b><c>", 334), add("<a", 335);
  const auto tokenizer = load_parts(whole);
  CHECK(tokenizer.encode("<a><b><c>") ==
        std::vector<int32_t>{333, *tokenizer.id("<"), *tokenizer.id("c"), *tokenizer.id(">")});
  CHECK(tokenizer.encode("<a><b") ==
        std::vector<int32_t>{332, *tokenizer.id("<"), *tokenizer.id("b")});
  CHECK(tokenizer.encode("<a<b><c>") == std::vector<int32_t>{335, 334});
}

TEST_CASE("bpe tokenizer: files may leave out what has a default") {
  const auto tokenizer =
      load_parts({{"model", {{"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
                  {"pre_tokenizer", {{"type", "ByteLevel"}}}});
  CHECK(tokenizer.encode("ab") == std::vector<int32_t>{2});
  CHECK(tokenizer.encode("a!b") == std::vector<int32_t>{0, 1});  // no token has the byte
}

TEST_CASE("bpe tokenizer: malformed files") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(BpeTokenizer::load(folder.path), FileError);
  for (const char* text : {"", "{", "[]", "{}", "null", R"({"model": 1})",
                           R"({"model": {"vocab": {}, "merges": []}})"}) {
    write_file(folder / "tokenizer.json", text);
    CHECK_THROWS_AS(BpeTokenizer::load(folder.path), FileError);
  }
  write_file(folder / "tokenizer.json", R"({"model": {"vocab": {"a": 0, "a": 1}}})");
  CHECK_THROWS_WITH_AS(BpeTokenizer::load(folder.path), doctest::Contains("\"a\" again"),
                       FileError);

  const auto vocabulary = [](const json& patch) {
    return patch_fault(0, {{"model", {{"vocab", patch}}}});
  };
  CHECK(contains(vocabulary({{"zzz", 1'000'000'000}}), "\"zzz\" must be a whole number"));
  CHECK(contains(vocabulary({{"zzz", -1}}), "\"zzz\" must be a whole number"));
  CHECK(contains(vocabulary({{"zzz", 1.5}}), "\"zzz\" must be a whole number"));
  CHECK(contains(vocabulary({{"zzz", "1"}}), "\"zzz\" must be a whole number"));
  CHECK(contains(vocabulary({{"zzz", 40}}), "with the id 40"));
  CHECK(contains(vocabulary({{"zzz", 600'000}}), "\"zzz\" must be a whole number"));
  CHECK(contains(vocabulary({{"<|im_end|>", 5}}), "with the id"));  // elsewhere in added_tokens

  const auto merges = [](const json& all) {
    return patch_fault(0, {{"model", {{"merges", all}}}});
  };
  const auto list = [](const auto&... items) { return json::array({items...}); };
  CHECK(contains(merges(list(list("e", "r"), list("e", "r"))), "merges must differ"));
  CHECK(contains(merges(list(list("z", "z"))), "must make a token"));
  CHECK(contains(merges(list(list("no such", "r"))), "must be a token"));
  CHECK(contains(merges(list("er")), "with a space between"));
  CHECK(contains(merges(list("e r r")), "with a space between"));
  CHECK(contains(merges(list(list("e", "r", "r"))), "of two tokens"));
  CHECK(contains(merges(list(7)), "of two tokens"));
  // An empty half would merge for ever.
  CHECK(contains(
      patch_fault(0, {{"model", {{"vocab", {{"", 340}}}, {"merges", list(list("", "e"))}}}}),
      "must make a token"));

  CHECK(contains(patch_fault(0, {{"normalizer", {{"type", "ByteLevel"}}}}), "normalizer"));
  CHECK(
      contains(patch_fault(0, {{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}), "pre-tokenizer"));
  CHECK(contains(
      patch_fault(0,
                  {{"pre_tokenizer",
                    {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}}}),
      "neither"));
  CHECK(contains(
      patch_fault(1,
                  {{"pre_tokenizer",
                    {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}}}}),
      "regular expression"));
  CHECK(contains(
      patch_fault(
          1, {{"pre_tokenizer",
               {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Contiguous"}}}}),
      "Contiguous"));
  CHECK(contains(patch_fault(0, {{"post_processor", {{"type", "Unknown"}}}}), "post-processor"));
  CHECK(contains(patch_fault(0, {{"decoder", {{"type", "WordPiece"}}}}), "decoder"));
  CHECK(contains(patch_fault(0, {{"model", {{"type", "WordPiece"}}}}), "BPE or Unigram"));
  CHECK(contains(patch_fault(0, {{"model", {{"dropout", 0.1}}}}), "dropout"));
  CHECK(contains(patch_fault(0, {{"model", {{"continuing_subword_prefix", "##"}}}}), "continuing"));
  CHECK(contains(patch_fault(1, {{"model", {{"byte_fallback", false}}}}), "neither"));
  CHECK(contains(patch_fault(0, {{"model", {{"byte_fallback", true}}}}), "both"));
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  const auto pre_tokenizers = [](const json& all) {
    return json{{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", all}}}};
  };
  CHECK(contains(patch_fault(1, pre_tokenizers({metaspace, metaspace})), "one Metaspace at most"));
  CHECK(contains(patch_fault(0, pre_tokenizers({metaspace, {{"type", "ByteLevel"}}})), "both"));
  write_file(folder / "tokenizer.json", std::string(100'000, '[') + std::string(100'000, ']'));
  CHECK_THROWS_AS(BpeTokenizer::load(folder.path), FileError);
}

TEST_SUITE_END();
