// Tables of text: CSV and TSV.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace rw {

// The rows of a file.
struct Table {
  std::vector<std::vector<std::string>> rows;  // of cells; there is a first row, the header if any
  std::vector<size_t> lines;                   // on which the rows begin, from 1
};

// Reads a file whose name ends in .csv (or .csv.gz) as RFC 4180 has it: cells between commas, and
// in quotes ("a ""word"", and more") also with commas, quotes and line breaks inside. Any other
// file has cells between tabs, in which quotes mean nothing, as in GLUE's files. Rows without text
// at the end of a file do not count. Throws FileError with the line for quotes that do not fit, and
// as read_text().
Table read_table(const std::filesystem::path& file);

}  // namespace rw
