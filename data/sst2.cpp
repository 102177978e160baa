#include "rewind/data/sst2.h"

#include <algorithm>
#include <charconv>

#include "rewind/core/base/error.h"
#include "rewind/data/files.h"

namespace rw {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// The column of that name, or the number of columns.
size_t find_column(const std::vector<std::string_view>& header, std::string_view name) {
  return static_cast<size_t>(std::ranges::find(header, name) - header.begin());
}

}  // namespace

SentenceDataset load_sst2(const std::filesystem::path& file) {
  constexpr int32_t max_classes = 10000;
  const auto bytes = read_file(file);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.ends_with('\n')) text.remove_suffix(1);

  SentenceDataset data;
  std::vector<std::string_view> header;
  size_t sentence = 0, label = 0, number = 0;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto cells = split(line, '\t');
    if (++number == 1) {
      header = cells;
      sentence = find_column(header, "sentence");
      label = find_column(header, "label");
      check<FileError>(sentence < header.size(), "load_sst2",
                       "{}:1 must name a column `sentence`, got `{}`", file.string(), line);
      continue;
    }
    check<FileError>(cells.size() == header.size(), "load_sst2",
                     "{}:{} must have {} columns as the header has, got {}", file.string(), number,
                     header.size(), cells.size());
    data.sentences.emplace_back(cells[sentence]);
    if (label == header.size()) continue;
    const std::string_view cell = cells[label];
    int32_t value = -1;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    const bool whole = error == std::errc() && end == cell.data() + cell.size();
    check<FileError>(whole && value >= 0 && value < max_classes, "load_sst2",
                     "{}:{} must have a label in [0, {}), got `{}`", file.string(), number,
                     max_classes, cell);
    data.labels.push_back(value);
    data.classes = std::max(data.classes, value + 1);
  }
  check<FileError>(data.size() > 0, "load_sst2", "{} must have a row below its header",
                   file.string());
  return data;
}

}  // namespace rw
