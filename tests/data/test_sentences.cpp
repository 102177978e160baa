// Sentences and pairs in GLUE's format: columns, labels, and faulty rows.
#include <doctest/doctest.h>

#include <tuple>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/text/sentences.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using test::fault_of;
using namespace std::literals;

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("sentences: columns by name, with or without labels") {
  const TemporaryFolder folder;
  write_file(folder / "train.tsv", "sentence\tlabel\na good film \t1\nbad\t0\r\n\"quoted\t02"sv);
  const SentenceDataset train = load_sentences(folder / "train.tsv");
  CHECK(train.sentences == std::vector<std::string>{"a good film ", "bad", "\"quoted"});
  CHECK_FALSE(train.has_pairs());
  CHECK(train.labels == std::vector<int32_t>{1, 0, 2});
  CHECK(train.class_names == std::vector<std::string>{"0", "1", "2"});
  write_file(folder / "test.tsv", "index\tsentence\n0\tfirst\n1\tsecond\n"sv);
  const SentenceDataset test = load_sentences(folder / "test.tsv");
  CHECK(test.sentences == std::vector<std::string>{"first", "second"});
  CHECK(test.labels.empty());

  const auto fault = [&](std::string_view text) {
    write_file(folder / "bad.tsv", text);
    return fault_of([&] { load_sentences(folder / "bad.tsv"); });
  };
  CHECK(fault("").c_str() == doctest::Contains("bad.tsv:1 must name a column"));
  CHECK(fault("good film\t1\n").c_str() == doctest::Contains("bad.tsv:1 must name a column"));
  CHECK(fault("sentence\tlabel\n").c_str() == doctest::Contains("must have a row"));
  CHECK(fault("sentence\tlabel\na\t1\nb\n").c_str() ==
        doctest::Contains("bad.tsv:3 must have 2 columns as the header has, got 1"));
  CHECK(fault("sentence\tlabel\na\tb\t1\n").c_str() == doctest::Contains("bad.tsv:2 must have 2"));
  CHECK(fault("sentence\tlabel\n\na\t1\n").c_str() == doctest::Contains("bad.tsv:2 must have 2"));
  for (const char* label :
       {"", "-1", "1.0", "word ", " 1", "\xff", "10000", "99999999999", "1e999"})
    CHECK(fault("sentence\tlabel\na\t"s + label + "\n").c_str() ==
          doctest::Contains("bad.tsv:2 must have a label"));
  CHECK(fault("sentence\tlabel\na\t1\nb\tword\n").c_str() ==
        doctest::Contains(
            "bad.tsv:3 must have a label that is a whole number in [0, 10000), got `word`"));
  CHECK(fault("sentence\tlabel\na\tword\nb\t1\n").c_str() ==
        doctest::Contains("bad.tsv:3 must have a label that is a word, got `1`"));
}

TEST_CASE("sentences: pairs with labels that are words, as MNLI has them") {
  const TemporaryFolder folder;
  write_file(folder / "train.tsv",
             "index\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
             "0\tx\tA man sleeps.\tHe rests.\tneutral\tentailment\n"
             "1\tx\tA man sleeps.\tHe runs.\tneutral\tcontradiction\n"
             "2\tx\tA man sleeps.\tWho knows?\tneutral\t-\n"
             "3\tx\tA dog.\tA pet.\tneutral\tneutral\n"sv);
  const SentenceDataset train = load_sentences(folder / "train.tsv");
  CHECK(train.sentences == std::vector<std::string>{"A man sleeps.", "A man sleeps.", "A dog."});
  CHECK(train.seconds == std::vector<std::string>{"He rests.", "He runs.", "A pet."});
  CHECK(train.class_names == std::vector<std::string>{"contradiction", "entailment", "neutral"});
  CHECK(train.labels == std::vector<int32_t>{1, 0, 2});

  // The classes are those of the training set, even if not all occur.
  write_file(folder / "dev.tsv", "premise\thypothesis\tlabel\na\tb\tneutral\n"sv);
  CHECK(load_sentences(folder / "dev.tsv", train.class_names).labels == std::vector<int32_t>{2});
  write_file(folder / "dev.tsv", "premise\thypothesis\tlabel\na\tb\tneutral\na\tb\tmaybe\n"sv);
  CHECK(fault_of([&] { load_sentences(folder / "dev.tsv", train.class_names); }).c_str() ==
        doctest::Contains("dev.tsv:3 must have a label of the training data, got `maybe`"));

  // Headers of QQP, QNLI and MRPC; `sentence` alone does not make a task of single sentences of
  // QNLI.
  for (const auto& [header, first, second] :
       {std::tuple{"id\tquestion1\tquestion2\tis_duplicate", "b", "c"},
        {"index\tquestion\tsentence\tlabel", "b", "c"},
        {"sentence2\tsentence1\tx\tlabel", "b", "a"},
        {"Quality\t#1 ID\t#1 String\t#2 String", "c", "0"}}) {
    CAPTURE(header);
    write_file(folder / "pairs.tsv",
               header + "\n"s + (header[0] == 'Q' ? "1\tb\tc\t0\n" : "a\tb\tc\t1\n"));
    const SentenceDataset data = load_sentences(folder / "pairs.tsv");
    CHECK(data.sentences == std::vector<std::string>{first});
    CHECK(data.seconds == std::vector<std::string>{second});
    CHECK(data.labels == std::vector<int32_t>{1});
  }
}

TEST_SUITE_END();
