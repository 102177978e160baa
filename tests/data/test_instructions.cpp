// Examples of instructions: what counts, what is refused, and how they lie in rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "data/chat/chat_format.h"
#include "data/chat/packed_examples.h"
#include "data/content_hash.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"
#include "tests/fixtures/message_of.h"

using namespace rw;
using namespace rw::test;

namespace {

// A tokenizer of bytes, so that every character has a token.
BpeTokenizer byte_tokenizer(const std::string& jinja = "") {
  BpeParts parts =
      train_bpe({}, {.size = 300, .special_tokens = {"</s>", "<|im_start|>", "<|im_end|>", "<s>"}});
  parts.bos = 3;
  parts.chat_template = jinja;
  return BpeTokenizer(parts);
}

Instructions read_lines(std::string_view lines, const char* format = "chatml",
                        const InstructionOptions& options = {}) {
  const BpeTokenizer tokenizer = byte_tokenizer();
  if (!format) return read_instructions(lines, "x.jsonl", tokenizer, nullptr, options);
  const ChatFormat chat(tokenizer, format);
  return read_instructions(lines, "x.jsonl", tokenizer, &chat, options);
}

std::string read_fault(std::string_view lines, const char* format = "chatml",
                       const InstructionOptions& options = {}) {
  return fault_of([&] { read_lines(lines, format, options); });
}

// The text of an example, with [] around the runs of tokens that count.
std::string marked(const InstructionExample& example) {
  const BpeTokenizer tokenizer = byte_tokenizer();
  std::string text;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    const bool before = i > 0 && example.counts[i - 1];
    if (before != bool{example.counts[i] != 0}) text += before ? "]" : "[";
    text += tokenizer.bytes(example.tokens[i]);
  }
  return text + (example.counts.back() ? "]" : "");
}

InstructionExample example_of(int32_t first, int64_t tokens) {
  InstructionExample made;
  for (int64_t i = 0; i < tokens; ++i) {
    made.tokens.push_back(first + static_cast<int32_t>(i));
    made.counts.push_back(i > tokens / 2);
  }
  return made;
}

uint64_t hash_of(const std::vector<InstructionExample>& examples) {
  return content_hash(std::span(examples));
}

// Examples of 2 to 17 tokens; none of them shares a token with another.
std::vector<InstructionExample> many_examples(int count) {
  std::vector<InstructionExample> made;
  for (int i = 0; i < count; ++i) made.push_back(example_of(100 * (i + 1), 2 + i * 7 % 16));
  return made;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("instructions: conversations, prompts and texts") {
  const Instructions read = read_lines(
      R"({"messages": [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b."}, {"role": "user", "content": "c?"}, {"role": "assistant", "content": "d."}], "more": 1})"
      "\n\n"
      R"({"prompt": "e?", "completion": "f."})"
      "\r\n"
      R"({"text": "gh"})");
  REQUIRE(read.examples.size() == 3);
  CHECK(marked(read.examples[0]) ==
        "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n[b.<|im_end|>]\n<|im_start|>user\n"
        "c?<|im_end|>\n<|im_start|>assistant\n[d.<|im_end|>]\n");
  CHECK(marked(read.examples[1]) ==
        "<|im_start|>user\ne?<|im_end|>\n<|im_start|>assistant\n[f.<|im_end|>]\n");
  CHECK(marked(read.examples[2]) == "[gh</s>]");
  CHECK(read.examples[2].targets() == 2);  // nothing predicts the first token
  CHECK(read.cut == 0);
  CHECK(read.dropped == 0);
}

TEST_CASE("instructions: without a chat format, completions follow their prompts") {
  const Instructions read = read_lines("{\"prompt\": \"ab \", \"completion\": \"c\"}", nullptr);
  CHECK(marked(read.examples.at(0)) == "ab [c</s>]");
  const Instructions all =
      read_lines("{\"prompt\": \"ab \", \"completion\": \"c\"}", nullptr, {.all_tokens = true});
  CHECK(marked(all.examples.at(0)) == "[ab c</s>]");
  // Tokens that end or begin a text come once.
  const Instructions ended = read_lines("{\"text\": \"<s>ab</s>\"}", nullptr);
  CHECK(marked(ended.examples.at(0)) == "[<s>ab</s>]");
  BpeParts parts = byte_tokenizer().parts();
  parts.add_bos = true;
  const BpeTokenizer begins{parts};
  for (const char* line : {R"({"text": "<s>ab"})", R"({"text": "ab"})"})
    CHECK(read_instructions(line, "x", begins, nullptr, {}).examples.at(0).tokens ==
          begins.encode("<s>ab</s>"));
  CHECK(read_instructions(R"({"prompt": "a", "completion": "b"})", "x", begins, nullptr, {})
            .examples.at(0)
            .targets() == 2);
}

TEST_CASE("instructions: other formats") {
  const char* line =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  // Its tokens for turns are not in the vocabulary, so an answer ends with its text.
  CHECK(marked(read_lines(line, "llama3").examples.at(0)) ==
        "<s><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n[b<|eot_id|>]<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[d<|eot_id|></s>]");
  CHECK(marked(read_lines(line, "llama2").examples.at(0)) ==
        "<s>[INST] a [/INST][ b </s>]<s>[INST] c [/INST][ d </s>]");
  // Thoughts are only in the last answer.
  CHECK(marked(read_lines(line, "qwen3").examples.at(0)) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n<|im_start|>user\n"
        "c<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nd<|im_end|>]\n");
}

TEST_CASE("instructions: a template of one's own, and one whose parts do not begin the whole") {
  const bool found = std::system(
                         "python3 -I -c 'import jinja2' 2> /dev/null || "
                         "/usr/bin/python3 -I -c 'import jinja2' 2> /dev/null") == 0;
  if (!found) {
    MESSAGE("skipped: there is no package python3-jinja2");
    return;
  }
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const auto read_by = [&](const std::string& jinja) {
    const BpeTokenizer tokenizer = byte_tokenizer(jinja);
    const ChatFormat chat(tokenizer);
    std::string lines;
    for (int i = 0; i < 300; ++i) lines += line + "\n";
    return read_instructions(lines, "x.jsonl", tokenizer, &chat, {});
  };
  const Instructions read = read_by(
      "{% for m in messages %}{{ m.role[0] + ':' + m.content + '<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}");
  REQUIRE(read.examples.size() == 300);
  for (const InstructionExample& example : read.examples)
    CHECK(marked(example) == "u:a<|im_end|>a:[b<|im_end|>]");
  const std::string fault = fault_of([&] {
    read_by("{{ messages | length }}{% for m in messages %}{{ m.content + '</s>' }}{% endfor %}");
  });
  CHECK(contains(fault, "line 1 of 'x.jsonl'"));
  CHECK(contains(fault, "as it does within the whole conversation, and does not"));
  CHECK(contains(fault_of([&] { read_by("{{ raise_exception('Not so.') }}"); }), "Not so."));
}

TEST_CASE("instructions: what is no example is an error with its line") {
  const std::string good = R"({"prompt": "a", "completion": "b"})"
                           "\n";
  const std::pair<std::string, const char*> faults[] = {
      {"[1, 2]", "must be a JSON object, one a line, got a list of 2"},
      {"{\"text\": ", "got no JSON"},
      {"{\"txt\": \"a\"}", "must have `messages`, `prompt` and `completion`, or `text`"},
      {"{\"text\": 5}", "\"text\" must be a text, got 5"},
      {"{\"text\": \"\"}", "the text must not be empty"},
      {R"({"prompt": "a", "completion": ""})", "the completion must not be empty"},
      {R"({"messages": "a"})", "\"messages\" must be a list"},
      {R"({"messages": ["a"]})", "a message must have a role and a content"},
      {R"({"messages": [{"role": "user"}]})", "\"content\" must be a text, got none"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "must have an answer"},
      {R"({"messages": [{"role": "assistant", "content": "a"}]})", "must begin with a message"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})",
       "an answer must not be empty"},
      {R"({"messages": [{"role": "x", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       "roles must be system, user or assistant"}};
  for (const auto& [line, message] : faults) {
    const std::string fault = read_fault(good + "\n" + line);
    CAPTURE(fault);
    CHECK(contains(fault, message));
    CHECK(contains(fault, "line 3 of 'x.jsonl'"));
  }
  CHECK(contains(read_fault("", "chatml"), "got none of 0 lines"));
  CHECK(contains(read_fault(R"({"messages": []})", nullptr), "--chat-format chatml"));
}

TEST_CASE("instructions: what is too long loses its end, or is refused") {
  const std::string lines =
      "{\"prompt\": \"ab\", \"completion\": \"cdefgh\"}\n{\"prompt\": \"abcdefg\", "
      "\"completion\": \"h\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}";
  const Instructions read = read_lines(lines, nullptr, {.longest = 5});
  REQUIRE(read.examples.size() == 2);
  CHECK(marked(read.examples[0]) == "ab[cde]");
  CHECK(marked(read.examples[1]) == "a[b</s>]");
  CHECK(read.cut == 1);
  CHECK(read.dropped == 1);
  const std::string fault = read_fault(lines, nullptr, {.longest = 5, .refuse_long = true});
  CHECK(contains(fault, "line 1 of 'x.jsonl': the text has 9 tokens, more than the 5 of a row"));
  CHECK(contains(read_fault(lines, nullptr, {.longest = 2}), "got none of 3 lines") == false);
  CHECK(
      contains(read_fault("{\"prompt\": \"abc\", \"completion\": \"d\"}", nullptr, {.longest = 3}),
               "whose answer begins within 3 tokens, got none of 1 lines"));
  CHECK_THROWS_AS(read_lines(lines, nullptr, {.longest = 1}), ValueError);
}

TEST_CASE("instructions: a share for the validation") {
  std::vector<InstructionExample> examples = many_examples(40), again = examples;
  const std::vector<InstructionExample> drawn = split_off(examples, 0.25, 3);
  CHECK(drawn.size() == 10);
  CHECK(examples.size() == 30);
  std::set<int32_t> firsts;
  for (const InstructionExample& example : examples) firsts.insert(example.tokens[0]);
  for (const InstructionExample& example : drawn) firsts.insert(example.tokens[0]);
  CHECK(firsts.size() == 40);
  CHECK(hash_of(split_off(again, 0.25, 3)) == hash_of(drawn));
  again = many_examples(40);
  CHECK(hash_of(split_off(again, 0.25, 4)) != hash_of(drawn));
  std::vector<InstructionExample> two = many_examples(2), one = many_examples(1);
  CHECK(split_off(two, 0.01, 1).size() == 1);
  CHECK_THROWS_AS(split_off(one, 0.5, 1), ValueError);
  CHECK_THROWS_AS(split_off(again, 1, 1), ValueError);
  one[0].counts[1] ^= 1;
  CHECK(hash_of(one) != hash_of(many_examples(1)));
}

TEST_CASE("packed examples: every example is in one row, with its start and its targets") {
  const std::vector<InstructionExample> examples = many_examples(50);
  for (const bool pack : {true, false}) {
    PackedExamples rows(examples,
                        {.length = 20, .batch_size = 3, .pack = pack, .shuffle = pack, .seed = 5});
    int64_t found = 0, counted = 0, taken = 0;
    for (int64_t i = 0; i < rows.batches(); ++i) {
      const InstructionBatch batch = rows.batch(0, i);
      counted += batch.counted;
      CHECK(batch.counted == std::ranges::count_if(batch.targets, [](int t) { return t >= 0; }));
      for (size_t at = 0; at < batch.ids.size(); ++at) {
        const size_t start = at / 20 * 20 + static_cast<size_t>(batch.starts[at]);
        CHECK(start <= at);
        if (batch.ids[at] == 0) continue;  // behind the last one
        ++taken;
        found += start == at;
        const InstructionExample& example =
            examples[static_cast<size_t>(batch.ids[start] / 100 - 1)];
        const size_t place = at - start;
        CHECK(batch.ids[at] == example.tokens[place]);
        CHECK(batch.targets[at] == (example.counts[place + 1] ? example.tokens[place + 1] : -100));
      }
    }
    CHECK(found == 50);
    CHECK(rows.fill() == doctest::Approx(static_cast<double>(taken) / (20.0 * rows.rows())));
    CHECK(counted == std::accumulate(examples.begin(), examples.end(), int64_t{0},
                                     [](int64_t n, const auto& e) { return n + e.targets(); }));
    CHECK(rows.rows() == (pack ? 23 : 50));  // 437 tokens fill 22 rows at least
  }
}

TEST_CASE("packed examples: a batch depends on seed, epoch and index alone") {
  const std::vector<InstructionExample> examples = many_examples(50);
  const PackedExamplesOptions options = {.length = 20, .batch_size = 3, .seed = 5};
  PackedExamples rows(examples, options), others(examples, options);
  const std::vector<int32_t> later = rows.batch(3, 2).ids;
  CHECK(others.batch(3, 2).ids == later);
  CHECK(others.batch(4, 2).ids != later);
  PackedExamples third(examples, {.length = 20, .batch_size = 3, .seed = 6});
  CHECK(third.batch(3, 2).ids != later);
}

TEST_CASE("packed examples: each goes into the first row with room for it") {
  std::vector<InstructionExample> examples;
  for (const int64_t room : {6, 5, 4, 3, 2, 1})
    examples.push_back(example_of(100 * static_cast<int32_t>(room), room + 1));
  PackedExamples rows(examples, {.length = 9, .batch_size = 9, .shuffle = false});
  CHECK(rows.rows() == 3);
  const InstructionBatch batch = rows.batch(0, 0);
  CHECK(batch.ids == std::vector<int32_t>{600, 601, 602, 603, 604, 605, 300, 301, 302,  //
                                          500, 501, 502, 503, 504, 400, 401, 402, 403,  //
                                          200, 201, 100, 0,   0,   0,   0,   0,   0});
  CHECK(std::vector<int32_t>(batch.starts.begin() + 18, batch.starts.end()) ==
        std::vector<int32_t>{0, 0, 2, 3, 3, 3, 3, 3, 3});
  CHECK_THROWS_AS(PackedExamples(examples, {.length = 5}), ValueError);
  CHECK_THROWS_AS(PackedExamples({}, {.length = 5}), ValueError);
  CHECK_THROWS_AS(PackedExamples(examples, {.length = 0}), ValueError);
  CHECK_THROWS_AS(rows.batch(0, 1), ValueError);
}

TEST_SUITE_END();
