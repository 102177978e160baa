#include "data/text/table.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/base/error.h"
#include "data/base/files.h"

namespace rw {

namespace {

bool is_csv(const std::filesystem::path& file) {
  std::string name = file.filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name.ends_with(".csv") || name.ends_with(".csv.gz");
}

// Reads the rows of a CSV file, cell by cell.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Table read() {
    Table table;
    do {
      table.lines.push_back(line_);
      std::vector<std::string>& row = table.rows.emplace_back();
      do row.push_back(next() == '"' ? quoted() : plain());
      while (take(","));
      if (take("\r\n") || take("\n") || take("\r")) ++line_;
    } while (at_ < text_.size());
    return table;
  }

 private:
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view text) {
    const bool is_next = text_.substr(at_).starts_with(text);
    if (is_next) at_ += text.size();
    return is_next;
  }
  std::string plain() {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string quoted() {
    std::string cell;
    const size_t first = line_;
    for (bool ends = false; !ends;) {
      const size_t begin = at_ + 1, end = text_.find('"', begin);
      check<FileError>(end != text_.npos, "read_table",
                       "{}:{} begins a cell in quotes, which must end with a quote and does not",
                       file_, first);
      cell += text_.substr(begin, end - begin);
      at_ = end + 1;
      ends = next() != '"';
      if (!ends) cell += '"';  // of two, which go on with the cell
    }
    line_ += static_cast<size_t>(std::ranges::count(cell, '\n'));
    check<FileError>(at_ == text_.size() || next() == ',' || next() == '\r' || next() == '\n',
                     "read_table",
                     "{}:{} must have a comma or the end of the line behind a cell in quotes, got "
                     "`{}`; a quote inside of such a cell is doubled",
                     file_, line_, next());
    return cell;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0, line_ = 1;
};

Table read_lines(std::string_view text) {
  Table table;
  for (size_t at = 0; at == 0 || at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    table.lines.push_back(table.rows.size() + 1);
    std::vector<std::string>& row = table.rows.emplace_back();
    for (size_t begin = 0; begin <= line.size(); begin = end + 1) {
      end = std::min(line.find('\t', begin), line.size());
      row.emplace_back(line.substr(begin, end - begin));
    }
  }
  return table;
}

bool is_blank(const std::vector<std::string>& row) {
  return std::ranges::all_of(
      row, [](const std::string& cell) { return cell.find_first_not_of(" \t") == cell.npos; });
}

}  // namespace

Table read_table(const std::filesystem::path& file) {
  const std::string text = read_text(file), name = file.string();
  Table table = is_csv(file) ? CsvReader(text, name).read() : read_lines(text);
  while (table.rows.size() > 1 && is_blank(table.rows.back())) {
    table.rows.pop_back();
    table.lines.pop_back();
  }
  return table;
}

}  // namespace rw
