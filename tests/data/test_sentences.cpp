// Sentences and pairs in GLUE's format: columns, labels, and faulty rows.
#include <doctest/doctest.h>

#include <tuple>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/text/sentences.h"
#include "data/text/table.h"
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
  for (const char* label : {"", "-1", "1.0", "word ", " 1", "10000", "99999999999", "1e999"})
    CHECK(fault("sentence\tlabel\na\t"s + label + "\n").c_str() ==
          doctest::Contains("bad.tsv:2 must have a label"));
  CHECK(fault("sentence\tlabel\na\t1\nb\tword\n").c_str() ==
        doctest::Contains(
            "bad.tsv:3 must have a label that is a whole number in [0, 10000), got `word`"));
  CHECK(fault("sentence\tlabel\na\tword\nb\t1\n").c_str() ==
        doctest::Contains("bad.tsv:3 must have a label that is a word, got `1`"));
}

TEST_CASE("tables: CSV as RFC 4180 has it, and TSV without quotes") {
  const TemporaryFolder folder;
  using Rows = std::vector<std::vector<std::string>>;
  const auto read = [&](const char* name, std::string_view text) {
    write_file(folder / name, text);
    return read_table(folder / name);
  };
  // As Python's csv module reads it.
  const Table csv = read("a.csv",
                         "\xef\xbb\xbflabel,\"a, b\",c\r\n"
                         "1,\"said \"\"no\"\"\",\r\n"
                         "\"two\nlines\",\"\",x\"y\n"
                         "\"\"\"\",\"\"\"a\"\"\",last\r\n\r\n,,\n \n"sv);
  CHECK(csv.rows == Rows{{"label", "a, b", "c"},
                         {"1", "said \"no\"", ""},
                         {"two\nlines", "", "x\"y"},
                         {"\"", "\"a\"", "last"}});
  CHECK(csv.lines == std::vector<size_t>{1, 2, 3, 5});
  CHECK(read("b.CSV", "a,b\rc,d\r").rows == Rows{{"a", "b"}, {"c", "d"}});
  CHECK(read("c.csv", "a,b\n\nc,").rows == Rows{{"a", "b"}, {""}, {"c", ""}});
  CHECK(read("d.csv", "").rows == Rows{{""}});
  const Table tsv = read("a.tsv", "a\t\"b\r\n\nc,d\t\"\n\n\t\n\n"sv);
  CHECK(tsv.rows == Rows{{"a", "\"b"}, {""}, {"c,d", "\""}});
  CHECK(tsv.lines == std::vector<size_t>{1, 2, 3});
  CHECK(read("b.tsv", "\n").rows == Rows{{""}});

  const auto fault = [&](std::string_view text) {
    return fault_of([&] { read("bad.csv", text); });
  };
  CHECK(fault("a\n\"b\nc\n").c_str() ==
        doctest::Contains("bad.csv:2 begins a cell in quotes, which must end with a quote"));
  CHECK(fault("a\n\"b\nc\"d\n").c_str() ==
        doctest::Contains("bad.csv:3 must have a comma or the end of the line behind a cell in "
                          "quotes, got `d`"));
}

TEST_CASE("tables: text of another encoding is refused by name, and a mark is no text") {
  const TemporaryFolder folder;
  const auto fault = [&](std::string_view text) {
    write_file(folder / "bad.tsv", text);
    return fault_of([&] { load_sentences(folder / "bad.tsv"); });
  };
  // Excel writes such a table; the label comes first.
  write_file(folder / "excel.csv",
             "\xef\xbb\xbflabel,sentence\r\n1,\"good, really\"\r\n0,bad\r\n\r\n"sv);
  const SentenceDataset excel = load_sentences(folder / "excel.csv");
  CHECK(excel.sentences == std::vector<std::string>{"good, really", "bad"});
  CHECK(excel.labels == std::vector<int32_t>{1, 0});

  for (const auto& [text, name] :
       {std::pair{"\xff\xfes\0e\0n\0"sv, "got UTF-16; convert it: iconv -f UTF-16 -t UTF-8"sv},
        {"\xfe\xff\0s\0e\0n"sv, "got UTF-16;"sv},
        {"\xff\xfe\0\0s\0\0\0"sv, "got UTF-32;"sv},
        {"s\0e\0n\0t\0\n\0"sv, "got UTF-16LE;"sv},
        {"\0s\0e\0n\0t\0\n"sv, "got UTF-16BE;"sv},
        {"sentence\tlabel\na\0b\t1\n"sv,
         ":2 must be a text file, but has NUL bytes, the first as byte 2"sv},
        {"sentence\tlabel\ngood\t1\nd\xe9j\xe0\t0\n"sv,
         "bad.tsv:3 must be UTF-8, got the byte 0xe9 as byte 2 of the line"sv},
        {"sentence\tlabel\ngood\t\xff\n"sv,
         "bad.tsv:2 must be UTF-8, got the byte 0xff as byte 6"sv},
        {"sentence\tlabel\n\xe2\x82"sv,
         "bad.tsv:2 must be UTF-8, got the byte 0xe2 as byte 1"sv}}) {
    CAPTURE(name);
    CHECK(fault(text).c_str() == doctest::Contains(std::string(name).c_str()));
  }
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
