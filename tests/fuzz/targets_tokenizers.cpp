// Readers of data/tokenizers: tokenizer.json, the metadata of GGUF files, texts, chat templates.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sstream>

#include "data/base/files.h"
#include "data/base/unicode.h"
#include "data/chat/chat_format.h"
#include "data/chat/packed_examples.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"
#include "data/tokenizers/gguf_tokenizer.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

using nlohmann::json;
constexpr std::string_view sample = "ab abc  a\u0301b 12\n<|e|>\xFF</s> \u2581b\U0001F600";

std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// Every id is a token, and tokens that come one by one give the text of all.
void use_tokenizer(const BpeTokenizer& tokenizer, std::string_view text) {
  for (const bool special : {true, false}) {
    const auto ids = tokenizer.encode(text, special, true);
    StreamingDecoder decoder(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) {
      expect(id >= 0 && id < tokenizer.size(), "every id is a token");
      streamed += decoder.push(id);
    }
    streamed += decoder.finish();
    const std::string whole = to_valid_utf8(tokenizer.decode(ids));
    // decode() may leave out more than one space of the first token.
    expect(
        streamed == whole || streamed == " " + whole || tokenizer.parts().strip == SpaceStrip::all,
        "a stream gives the text of all tokens");
  }
}

// The file of an accepted tokenizer is one of the same tokenizer.
void read_bpe(Input input) {
  write_scratch("tokenizer.json", input);
  const auto tokenizer = BpeTokenizer::load(scratch_file("tokenizer.json"));
  use_tokenizer(tokenizer, sample);
  tokenizer.save(scratch_file("saved"));
  const auto again = BpeTokenizer::load(scratch_file("saved"));
  expect(again.encode(sample) == tokenizer.encode(sample), "a tokenizer survives a round trip");
}

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
}

json small_json() {
  return {{"added_tokens",
           {{{"id", 5}, {"content", "<|e|>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", byte_level()},
          {"post_processor", nullptr},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"\u0120", 3}, {"\u0120ab", 4}}},
            {"merges", {"a b", "\u0120 ab"}}}}};
}

std::vector<Bytes> bpe_seeds() {
  json split = small_json();
  split["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers",
                             {{{"type", "Split"},
                               {"pattern", {{"Regex", "\\p{N}{1,3}| ?\\p{L}+|\\s+(?!\\S)"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}},
                              {{"type", "Digits"}, {"individual_digits", true}},
                              byte_level()}}};
  split["model"]["ignore_merges"] = true;
  split["model"]["merges"] = json::array({json::array({"a", "b"})});
  json characters = small_json();
  characters["normalizer"] = nullptr;
  characters["pre_tokenizer"] = {{"type", "Metaspace"},
                                 {"replacement", "\u2581"},
                                 {"prepend_scheme", "first"},
                                 {"split", true}};
  characters["decoder"] = nullptr;
  characters["model"]["byte_fallback"] = true;
  for (int byte = 0; byte < 256; ++byte)
    characters["model"]["vocab"][fmt::format("<0x{:02X}>", byte)] = byte + 5;
  json unigram = small_json();
  unigram["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Nmt"}},
        {{"type", "NFKD"}},
        {{"type", "StripAccents"}},
        {{"type", "Lowercase"}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "^|x*"}}}, {"content", "a"}},
        {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
        {{"type", "Prepend"}, {"prepend", "\u2581"}}}}};
  unigram["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  unigram["decoder"] = unigram["pre_tokenizer"];
  unigram["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"a", 1}}, {"sep", {"b", 2}}};
  unigram["model"] = {{"type", "Unigram"}, {"unk_id", 0}};
  for (const char* piece : {"<unk>", "a", "b", "ab", "\u2581"})
    unigram["model"]["vocab"].push_back(json::array({piece, -1.5}));
  return {to_bytes(small_json().dump()), to_bytes(split.dump()), to_bytes(characters.dump()),
          to_bytes(unigram.dump())};
}

// Lines behind the names of the model and the pattern are words: tokens with their type
// as a first digit, merges ("m a b"), and a table of characters ("t " and its bytes).
void read_gguf_tokenizer(Input input) {
  std::istringstream lines{std::string(text_of(input))};
  GgufTokenizer metadata;
  std::getline(lines, metadata.model);
  std::getline(lines, metadata.pre);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("m ")) {
      metadata.merges.push_back(line.substr(2));
    } else if (line.starts_with("t ")) {
      metadata.precompiled_charsmap = line.substr(2);
      metadata.remove_extra_whitespaces = line.size() % 2 == 0;
      metadata.add_space_prefix = line.size() % 3 == 0;
    } else if (!line.empty()) {
      metadata.tokens.push_back(line.substr(1));
      metadata.token_type.push_back(line[0] - '0');
      metadata.scores.push_back(static_cast<float>(line.size()));
    }
  }
  metadata.bos_token_id = 1;
  use_tokenizer(BpeTokenizer(from_gguf(metadata)), sample);
}

std::vector<Bytes> gguf_tokenizer_seeds() {
  std::string pieces = "llama\n-\n2<unk>\n3<s>\n3</s>\n1a\n1b\n1ab\n1\u2581\n1\u2581ab\n4  \n";
  for (int byte = 0; byte < 256; ++byte) pieces += fmt::format("6<0x{:02X}>\n", byte);
  return {to_bytes("gpt2\nqwen2\n1a\n1b\n1ab\n1\u0120\n3<|e|>\nm a b\n"),
          to_bytes("gpt2\nllama-bpe\n1a\n1b\n1ab\n1c\n1abc\nm a b\nm ab c\n"), to_bytes(pieces),
          to_bytes("t5\n-\n3<pad>\n3</s>\n2<unk>\n1a\n1b\n1ab\n1\u2581\n1\u2581ab\n4  \nt ")};
}

// A tokenizer with all bytes keeps what is UTF-8.
void read_bpe_text(Input input) {
  static const BpeTokenizer tokenizer(train_bpe(std::vector<std::string>(9, std::string(sample)),
                                                {.pattern = llama3_pattern, .nfc = false}));
  const auto text = text_of(input);
  use_tokenizer(tokenizer, text);
  for (const bool special : {true, false})
    expect(tokenizer.decode(tokenizer.encode(text, special)) == to_valid_utf8(text),
           "bytes survive a round trip");
  if (text.size() % 32 != 0) return;  // training takes a while
  const std::vector<std::string> texts(2, std::string(text));
  const BpeParts trained = train_bpe(texts, {.size = 300});
  expect(trained.tokens.size() <= 300 && trained.merges.size() + 259 >= trained.tokens.size(),
         "a token of each merge, or one that was there");
}

std::vector<Bytes> bpe_text_seeds() {
  return {to_bytes(sample), to_bytes("It's we'LL 12345\r\n\r\n  x<|im_end|><|im_start|>"), {}};
}

// The formats that need no other process.
void read_chat(Input input) {
  static const BpeTokenizer plain(train_bpe({}, {.size = 300}));
  const std::string said(text_of(input));
  const std::vector<ChatMessage> chat = {{"user", said}, {"assistant", said}, {"user", "a"}};
  for (const char* name : {"chatml", "qwen3", "llama3", "llama3.1", "gemma", "llama2"}) {
    const ChatFormat format(plain, name);
    expect(format.render(chat).starts_with(format.render(chat, false)), "a prompt comes last");
  }
}

std::vector<Bytes> chat_seeds() {
  return {to_bytes("<think>\n\nhm\n</think>\n\n4"), to_bytes("</think>\n<think></think>"),
          to_bytes(" \u3000a\u00a0\n"), to_bytes("<tool_response>5</tool_response>")};
}

// Examples are cut to what rows hold.
void read_examples(Input input) {
  static const BpeTokenizer plain(train_bpe({}, {.size = 300}));
  const ChatFormat chat(plain, "chatml");
  for (const ChatFormat* format : {&chat, static_cast<const ChatFormat*>(nullptr)}) {
    const Instructions read =
        read_instructions(text_of(input), "fuzz", plain, format, {.longest = 9});
    PackedExamples rows(read.examples, {.length = 8, .batch_size = 2});
    for (int64_t i = 0; i < rows.batches(); ++i)
      expect(rows.batch(0, i).counted > 0, "every row has a target");
  }
}

std::vector<Bytes> example_seeds() {
  return {to_bytes(R"({"messages": [{"role": "user", "content": "a"}, )"
                   R"({"role": "assistant", "content": "b"}]})"),
          to_bytes("{\"prompt\": \"a\", \"completion\": \"b\"}\n\n{\"text\": \"\u00e9\"}")};
}

}  // namespace

std::vector<Target> tokenizer_targets() {
  return {{"bpe",
           read_bpe,
           bpe_seeds,
           {"\"type\":",
            "\"Sequence\"",
            "\"Split\"",
            "\"ByteLevel\"",
            "\"Metaspace\"",
            "\"Lowercase\"",
            "\"StripAccents\"",
            "\"Nmt\"",
            "\"Prepend\"",
            "\"vocab\":{",
            "\"merges\":[",
            "null",
            "true",
            "false",
            "1000000000",
            "-1",
            "\"Regex\":",
            "\"String\":",
            "(",
            "+",
            "*",
            "\\\\p{L}",
            "\"a\":0",
            "[\"a\",\"b\"]",
            "\"Removed\"",
            "\"MergedWithNext\"",
            "\"prepend_scheme\":\"always\"",
            "\xFF",
            "\"\""}},
          {"gguf_tokenizer",
           read_gguf_tokenizer,
           gguf_tokenizer_seeds,
           {"m ", "t ", "\n", "1", "6", "4", "0", "gpt2", "llama", "t5", "default", "<0x00>", " ",
            "\u2581", "\xFF"}},
          {"bpe_text",
           read_bpe_text,
           bpe_text_seeds,
           {"<|im_end|>", " ", "\n", "'s", "a\u0301", "\xE2\x82", "123", "\u2581"},
           false},
          {"chat",
           read_chat,
           chat_seeds,
           {"<think>", "</think>", "<tool_response>", "</tool_response>", "\n", " ", "\u3000",
            "\u0085", "\xE3\x80"}},
          {"instructions",
           read_examples,
           example_seeds,
           {"\"messages\":", "\"role\":", "\"content\":", "\"text\":", "null", "[{", "}]", "\n",
            "<|im_end|>"}}};
}

}  // namespace rw::fuzz
