// Sentences, and pairs of sentences, with classes: GLUE's TSV files, or CSV files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace rw {

// Texts with their classes.
struct SentenceDataset {
  std::vector<std::string> sentences;    // or the first ones of pairs
  std::vector<std::string> seconds;      // [size] of pairs; empty where sentences stand alone
  std::vector<int32_t> labels;           // [size], each a class; empty where the file has none
  std::vector<std::string> class_names;  // "0", "1", ... where labels are numbers

  size_t size() const { return sentences.size(); }     // rows
  bool has_pairs() const { return !seconds.empty(); }  // of sentences
};

// Reads a table (read_table()): a header that names the columns, then a row per sentence or pair.
// The sentence is in `sentence`; pairs are in `sentence1` and `sentence2` (MNLI, RTE), `question1`
// and `question2` (QQP), `question` and `sentence` (QNLI), `premise` and `hypothesis`, or `#1
// String` and `#2 String` (MRPC). The label is in `gold_label`, `label`, `is_duplicate` or
// `Quality`, if there is one of these; other columns are ignored. Labels are whole numbers in [0,
// 10000), or words, whose sorted order numbers the classes. Pairs whose gold_label is `-`, on which
// the annotators did not agree, are left out.
//
// `class_names` are those of the training data; any other label is an error. Throws FileError
// naming the line.
SentenceDataset load_sentences(const std::filesystem::path& file,
                               std::span<const std::string> class_names = {});

}  // namespace rw
