// Text, its examples, masks, batches and their streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/base/prefetch.h"
#include "data/images/loader.h"
#include "data/text/text_loader.h"
#include "data/text/tokenizer_training.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using test::fault_of;
using namespace std::literals;

namespace {

// Words w0 to w99, of which w10 and on are two pieces; ids are known by name.
const Tokenizer& number_tokenizer() {
  static const Tokenizer tokenizer = [] {
    std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (int i = 0; i < 10; ++i) {
      tokens.push_back("w" + std::to_string(i));
      tokens.push_back("##" + std::to_string(i));
    }
    return Tokenizer(Vocabulary(tokens));
  }();
  return tokenizer;
}

std::string show(const TextExample& example) {
  return number_tokenizer().decode(example.ids, false);
}

// `count` one-piece words per sentence, which name their document.
std::vector<Document> documents_of(int documents, int sentences, int words) {
  std::vector<Document> result(static_cast<size_t>(documents));
  for (int d = 0; d < documents; ++d)
    for (int s = 0; s < sentences; ++s) {
      std::string& sentence = result[static_cast<size_t>(d)].emplace_back();
      for (int w = 0; w < words; ++w) sentence += "w" + std::to_string(d) + " ";
    }
  return result;
}

// Examples of lengths 3, 4, ... with their number as label.
std::vector<TextExample> ladder(int count, int longest = 40) {
  std::vector<TextExample> examples;
  const Vocabulary& v = number_tokenizer().vocabulary();
  for (int i = 0; i < count; ++i) {
    TextExample& example = examples.emplace_back();
    example.ids.assign(static_cast<size_t>(3 + i % (longest - 2)), v.id("w1"));
    example.ids.front() = v.cls;
    example.ids.back() = v.sep;
    example.second = static_cast<int64_t>(example.ids.size());
    example.label = i;
  }
  return examples;
}

bool is_same_batch(const TextBatch& a, const TextBatch& b) {
  return a.ids == b.ids && a.targets == b.targets && a.labels == b.labels && a.mask == b.mask &&
         a.token_types == b.token_types && a.rows == b.rows && a.length == b.length;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("text: lines are sentences, blank lines and files end documents") {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "\n\n one \r\ntwo\n \t\f\n\nthree"sv);
  write_file(folder / "b.txt", "four\n"sv);
  const std::vector files{folder / "a.txt", folder / "b.txt"};
  CHECK(read_documents(files) == std::vector<Document>{{"one", "two"}, {"three"}, {"four"}});

  // A byte-order mark is no text.
  write_file(folder / "marked.txt",
             "\xef\xbb\xbf"
             "one\n\xef\xbb\xbftwo"sv);
  CHECK(read_texts(std::vector{folder / "marked.txt"})[0] == "one\n\xef\xbb\xbftwo");

  write_file(folder / "binary", "a\0b"sv);
  write_file(folder / "latin", "a\n\n  caf\xe9\n"sv);
  write_file(folder / "blank", " \n\n"sv);
  const auto fault = [&](const char* name) {
    return fault_of([&] { read_documents(std::vector{folder / name}); });
  };
  CHECK(fault("binary").c_str() == doctest::Contains("NUL"));
  CHECK(fault("latin").c_str() ==
        doctest::Contains("latin:3 must be UTF-8, got the byte 0xe9 as byte 6 of the line"));
  CHECK(fault("blank").c_str() == doctest::Contains("must be text to read"));
  CHECK(fault("missing").c_str() == doctest::Contains("missing"));
}

TEST_CASE("sentences: pairs are cut longest first, with the second text's own type") {
  const SentenceDataset data{.sentences = {"w1 w2 w3 w4 w5", "w1"},
                             .seconds = {"w6 w7", ""},
                             .labels = {1, 0},
                             .class_names = {"0", "1"}};
  const auto examples = sentence_examples(data, number_tokenizer(), 8);
  CHECK(show(examples[0]) == "[CLS] w1 w2 w3 [SEP] w6 w7 [SEP]");
  CHECK(examples[0].second == 5);
  CHECK(examples[0].label == 1);
  CHECK(show(examples[1]) == "[CLS] w1 [SEP] [SEP]");
  TextLoader loader(examples, number_tokenizer().vocabulary(), {.batch_size = 2, .shuffle = false});
  const TextBatch batch = loader.batch(0, 0);
  CHECK(std::vector(batch.token_types.begin(), batch.token_types.begin() + 8) ==
        std::vector<int32_t>{0, 0, 0, 0, 0, 1, 1, 1});
  CHECK(std::vector(batch.token_types.begin() + 8, batch.token_types.end()) ==
        std::vector<int32_t>{0, 0, 0, 1, 0, 0, 0, 0});

  const SentenceDataset single{.sentences = {"w1"}};
  CHECK(sentence_examples(single, number_tokenizer(), 8)[0].second == 3);
}

TEST_CASE("pack_sequences: full sequences, cut between words") {
  const std::vector<Document> documents{{"w1 w2", "w3 w44"}, {"w5"}, {"", "w6 w7 w8"}};
  const auto pack = [&](int64_t length, bool cross) {
    std::vector<std::string> shown;
    for (const auto& e : pack_sequences(documents, number_tokenizer(), length, cross)) {
      CHECK(static_cast<int64_t>(e.ids.size()) <= length);
      CHECK(e.second == static_cast<int64_t>(e.ids.size()));
      shown.push_back(show(e));
    }
    return shown;
  };
  using Shown = std::vector<std::string>;
  CHECK(pack(64, true) == Shown{"[CLS] w1 w2 w3 w44 [SEP] w5 [SEP] w6 w7 w8 [SEP]"});
  CHECK(pack(64, false) ==
        Shown{"[CLS] w1 w2 w3 w44 [SEP]", "[CLS] w5 [SEP]", "[CLS] w6 w7 w8 [SEP]"});
  CHECK(pack(6, true) ==
        Shown{"[CLS] w1 w2 w3 [SEP]", "[CLS] w44 [SEP] w5 [SEP]", "[CLS] w6 w7 w8 [SEP]"});
  // The separator that a cut leaves at the end is not there twice.
  CHECK(pack(8, true) == Shown{"[CLS] w1 w2 w3 w44 [SEP]", "[CLS] w5 [SEP] w6 w7 w8 [SEP]"});
  CHECK(pack(3, true).size() == 9);  // even a word is cut where it must be
  CHECK_THROWS_AS(pack(2, true), ValueError);
}

TEST_CASE("pack_pairs: what follows or what does not, within the length") {
  const auto documents = documents_of(10, 30, 4);
  const auto pairs = pack_pairs(documents, number_tokenizer(), {.max_length = 32, .seed = 3});
  const Vocabulary& v = number_tokenizer().vocabulary();
  int64_t random = 0, shorter = 0;
  for (const TextExample& pair : pairs) {
    const auto size = static_cast<int64_t>(pair.ids.size());
    REQUIRE(size <= 32);
    REQUIRE(pair.ids[0] == v.cls);
    REQUIRE(pair.ids[static_cast<size_t>(pair.second - 1)] == v.sep);
    REQUIRE(pair.ids.back() == v.sep);
    REQUIRE(pair.second >= 3);
    REQUIRE(size >= pair.second + 2);
    // Documents differ just where the label says so.
    REQUIRE((pair.ids[1] != pair.ids[static_cast<size_t>(pair.second)]) == (pair.label == 1));
    random += pair.label;
    shorter += size < 25;
  }
  const auto count = static_cast<int64_t>(pairs.size());
  CHECK(count > 40);
  CHECK(random > count * 3 / 10);
  CHECK(random < count * 8 / 10);
  CHECK(shorter > 0);
  CHECK(shorter < count / 2);

  const auto ids_of = [&](uint64_t seed) {
    std::vector<std::vector<int32_t>> ids;
    for (auto& e : pack_pairs(documents, number_tokenizer(), {.max_length = 32, .seed = seed}))
      ids.push_back(std::move(e.ids));
    return ids;
  };
  CHECK(ids_of(3) == ids_of(3));
  CHECK(ids_of(3) != ids_of(4));
  CHECK_FALSE(pack_pairs(documents, number_tokenizer(), {.max_length = 5}).empty());
  CHECK_THROWS_AS(pack_pairs(documents_of(1, 3, 3), number_tokenizer(), {}), ValueError);
  CHECK_THROWS_AS(pack_pairs(documents, number_tokenizer(), {.max_length = 4}), ValueError);
}

TEST_CASE("pack_pairs: the pairs of a document hold all of it, once and in order") {
  // Documents have words of their own, and sentences one word, so that nothing is ever cut off.
  const std::array words{"w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9"};
  std::vector<Document> documents(2);
  std::vector<std::vector<int32_t>> whole(2);
  const Vocabulary& v = number_tokenizer().vocabulary();
  for (size_t d = 0; d < 2; ++d)
    for (size_t i = 0; i < 60; ++i) {
      documents[d].push_back(words[5 * d + i * i % 7 % 5]);
      whole[d].push_back(v.id(documents[d].back()));
    }
  const auto document_of = [&](int32_t id) {
    return static_cast<size_t>(std::ranges::count(whole[0], id) == 0);
  };
  std::vector<std::vector<int32_t>> held(2);
  for (const TextExample& pair :
       pack_pairs(documents, number_tokenizer(), {.max_length = 16, .seed = 4})) {
    const auto end = pair.ids.begin() + (pair.label == 1 ? pair.second : std::ssize(pair.ids));
    std::vector<int32_t>& ids = held[document_of(pair.ids[1])];
    std::copy_if(pair.ids.begin(), end, std::back_inserter(ids),
                 [&](int32_t id) { return !v.is_special(id); });
  }
  CHECK(held == whole);
}

TEST_CASE("mask_tokens: 15 % of the tokens, of them 80 % masked, 10 % random, 10 % kept") {
  const Vocabulary& v = number_tokenizer().vocabulary();
  std::vector<int32_t> original(10000, v.id("w1"));
  for (size_t i = 0; i < original.size(); i += 10) original[i] = v.sep;
  auto ids = original;
  const auto targets = mask_tokens(ids, v, {}, DataRandom(1));
  int chosen = 0, masked = 0, kept = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (targets[i] == -100) {
      REQUIRE(ids[i] == original[i]);
      continue;
    }
    REQUIRE(original[i] == v.id("w1"));
    REQUIRE(targets[i] == original[i]);
    ++chosen;
    masked += ids[i] == v.mask;
    kept += ids[i] == original[i];
  }
  CHECK(chosen == 1500);
  // Random tokens are [MASK] or the original one time in 25 each: 0.804 and 0.104, 4 sigma.
  CHECK(std::abs(masked - 1206) < 62);
  CHECK(std::abs(kept - 156) < 48);

  auto again = original, other = original;
  CHECK(mask_tokens(again, v, {}, DataRandom(1)) == targets);
  CHECK(again == ids);
  CHECK(mask_tokens(other, v, {}, DataRandom(2)) != targets);
}

TEST_CASE("mask_tokens: whole words, limits, specials") {
  const Vocabulary& v = number_tokenizer().vocabulary();
  std::vector<int32_t> words{v.cls};
  for (int i = 0; i < 100; ++i)
    for (const char* piece : {"w1", "##2", "##3"}) words.push_back(v.id(piece));
  words.push_back(v.sep);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto ids = words;
    const auto targets =
        mask_tokens(ids, v, {.whole_words = true, .max_predictions = 20}, DataRandom(seed));
    const auto chosen = std::ranges::count_if(targets, [](int32_t t) { return t != -100; });
    REQUIRE(chosen == 18);  // six words: a seventh would be too many
    for (size_t i = 1; i < words.size() - 1; i += 3)
      REQUIRE((targets[i] == -100) == (targets[i + 1] == -100));
  }
  const auto count = [&](std::vector<int32_t> ids, const MaskingOptions& options) {
    const auto targets = mask_tokens(ids, v, options, DataRandom(1));
    return std::ranges::count_if(targets, [](int32_t t) { return t != -100; });
  };
  CHECK(count(words, {}) == 45);
  CHECK(count(words, {.max_predictions = 7}) == 7);
  CHECK(count({v.cls, v.id("w1"), v.sep}, {}) == 1);
  CHECK(count({v.cls, v.sep, v.pad, v.unk, v.mask}, {.probability = 1}) == 0);
  CHECK(count({v.id("##1"), v.id("##2")}, {.probability = 1, .whole_words = true}) == 2);
  // A piece goes on with the token before it, and not with a word beyond a special one.
  std::vector<int32_t> gap{v.id("w1"), v.sep, v.id("##2")};
  CHECK(mask_tokens(gap, v, {.probability = 1, .mask = 1, .random = 0, .whole_words = true},
                    DataRandom(1)) == std::vector<int32_t>{v.id("w1"), -100, v.id("##2")});
  CHECK(gap == std::vector<int32_t>{v.mask, v.sep, v.mask});
  CHECK(count({}, {}) == 0);
  CHECK_THROWS_AS(count(words, {.probability = 0}), ValueError);
  CHECK_THROWS_AS(count(words, {.mask = 0.8, .random = 0.3}), ValueError);
  CHECK_THROWS_AS(count(words, {.max_predictions = -1}), ValueError);
}

TEST_CASE("TextLoader: padding, types, lengths, targets") {
  const Tokenizer& t = number_tokenizer();
  const Vocabulary& v = t.vocabulary();
  std::vector<TextExample> examples(2);
  examples[0] = {t.encode_pair("w1 w2", "w3").ids, 4, 1};
  examples[1] = {t.encode("w4").ids, 3, 0};
  TextLoader loader(examples, v, {.batch_size = 4, .shuffle = false});
  const TextBatch batch = loader.batch(0, 0);
  CHECK(batch.rows == 2);
  CHECK(batch.length == 8);
  CHECK(t.decode(batch.ids, false) ==
        "[CLS] w1 w2 [SEP] w3 [SEP] [PAD] [PAD] [CLS] w4 [SEP] [PAD] [PAD] [PAD] [PAD] [PAD]");
  CHECK(batch.token_types == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.mask == std::vector<int32_t>{1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0});
  CHECK(batch.lengths == std::vector<int32_t>{6, 3});
  CHECK(batch.labels == std::vector<int32_t>{1, 0});
  CHECK(batch.targets.empty());

  TextLoader masking(examples, v,
                     {.batch_size = 2, .fixed_length = 16, .masking = MaskingOptions{}});
  const TextBatch masked = masking.batch(0, 0);
  CHECK(masked.length == 16);
  CHECK(masked.targets.size() == 32);
  CHECK(masked.predictions == 2);
  CHECK(masked.predictions ==
        std::ranges::count_if(masked.targets, [](int32_t id) { return id != -100; }));
  CHECK(is_same_batch(masked, masking.batch(0, 0)));
  CHECK_THROWS_AS(TextLoader(examples, v, {.fixed_length = 5}), ValueError);
  CHECK_THROWS_AS(TextLoader(examples, v, {.shard = 2, .shards = 2}), ValueError);
  CHECK_THROWS_AS(TextLoader({}, v, {}), ValueError);
  CHECK_THROWS_AS(loader.batch(0, 1), ValueError);
}

TEST_CASE("TextLoader: an epoch has each example once, in another order than the last") {
  const auto examples = ladder(103);
  for (const int64_t bucket : {1, 4}) {
    for (const int64_t shards : {1, 3}) {
      std::vector<std::vector<int32_t>> epochs(2);
      for (int64_t shard = 0; shard < shards; ++shard) {
        TextLoader loader(examples, number_tokenizer().vocabulary(),
                          {.batch_size = 8,
                           .bucket_batches = bucket,
                           .shard = shard,
                           .shards = shards,
                           .seed = 5});
        for (size_t epoch = 0; epoch < 2; ++epoch)
          for (int64_t i = 0; i < loader.batches(); ++i)
            for (const int32_t label : loader.batch(static_cast<int64_t>(epoch), i).labels)
              epochs[epoch].push_back(label);
      }
      CHECK(epochs[0] != epochs[1]);
      std::vector<int32_t> all(103);
      std::iota(all.begin(), all.end(), 0);
      for (auto& labels : epochs) {
        std::ranges::sort(labels);
        CHECK(labels == all);
      }
    }
  }
  int64_t batches = 0;
  for (int64_t shard = 0; shard < 5; ++shard) {
    TextLoader loader(examples, number_tokenizer().vocabulary(),
                      {.batch_size = 8, .drop_last = true, .shard = shard, .shards = 5});
    CHECK(loader.batches() == 2);  // 12 full batches, two for each
    batches += loader.batches();
  }
  CHECK(batches == 10);
}

TEST_CASE("TextLoader: buckets pad less") {
  const auto examples = ladder(256, 128);
  const auto cells = [&](int64_t bucket) {
    TextLoader loader(examples, number_tokenizer().vocabulary(),
                      {.batch_size = 8, .bucket_batches = bucket, .seed = 1});
    int64_t sum = 0;
    for (int64_t i = 0; i < loader.batches(); ++i) {
      const TextBatch batch = loader.batch(0, i);
      CHECK(batch.length % 8 == 0);
      sum += batch.rows * batch.length;
    }
    return sum;
  };
  int64_t tokens = 0;
  for (const auto& example : examples) tokens += static_cast<int64_t>(example.ids.size());
  CHECK(cells(32) < tokens + tokens / 10);
  CHECK(cells(1) > tokens + tokens / 2);
}

TEST_CASE("BatchStream: resumes with the very next batch, across epochs") {
  const auto examples = ladder(50);
  const TextLoaderOptions options{
      .batch_size = 8, .bucket_batches = 2, .masking = MaskingOptions{}, .seed = 9};
  TextLoader loader(examples, number_tokenizer().vocabulary(), options);
  std::vector<TextBatch> expected;
  std::vector<StreamState> states;
  {
    BatchStream stream(loader);
    for (int i = 0; i < 20; ++i) {
      states.push_back(stream.state());
      expected.push_back(stream.next());
    }
  }
  CHECK(states[8] == StreamState{9, 1, 1});  // 7 batches an epoch
  for (const size_t start : {0u, 1u, 6u, 7u, 13u, 19u}) {
    TextLoader fresh(examples, number_tokenizer().vocabulary(), options);
    BatchStream stream(fresh, states[start], 3);
    for (size_t i = start; i < expected.size(); ++i)
      REQUIRE(is_same_batch(stream.next(), expected[i]));
  }
  CHECK_FALSE(is_same_batch(expected[0], expected[7]));
  CHECK_THROWS_AS(BatchStream(loader, StreamState{8, 0, 0}), ValueError);
  CHECK_THROWS_AS(BatchStream(loader, StreamState{9, 0, 7}), ValueError);
}

TEST_CASE("text: from a file to batches with a vocabulary of its own") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "The licensee may copy and distribute the program, line " + std::to_string(i) +
            (i % 5 == 4 ? ".\n\n" : ".\n");
  write_file(folder / "text", std::string_view(text));
  const auto documents = read_documents(std::vector{folder / "text"});
  CHECK(documents.size() == 40);
  const Tokenizer tokenizer(train_vocabulary(documents, {.size = 200}));
  const auto examples = pack_sequences(documents, tokenizer, 32);
  TextLoader loader(examples, tokenizer.vocabulary(),
                    {.batch_size = 8, .masking = MaskingOptions{}});
  const TextBatch batch = loader.batch(0, 0);
  CHECK(batch.length == 32);
  CHECK(batch.predictions > 20);
  CHECK(std::ranges::find(batch.ids, tokenizer.vocabulary().unk) == batch.ids.end());
}

TEST_SUITE_END();
