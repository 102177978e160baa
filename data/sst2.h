// Sentences with classes in GLUE's TSV format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rw {

// Sentences with the class of each.
struct SentenceDataset {
  std::vector<std::string> sentences;  // UTF-8
  std::vector<int32_t> labels;  // [size], each in [0, classes); empty where the file has none
  int32_t classes = 0;          // one more than the largest label

  size_t size() const { return sentences.size(); }  // sentences
};

// A header naming the columns, then a row per sentence: `sentence` is needed, `label` is read where
// present (test files have none), others are ignored. Throws FileError naming the line.
SentenceDataset load_sst2(const std::filesystem::path& file);

}  // namespace rw
