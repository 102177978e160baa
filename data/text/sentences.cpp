#include "data/text/sentences.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "core/base/error.h"
#include "data/text/table.h"

namespace rw {

namespace {

constexpr int32_t max_classes = 10000;

using Cells = std::vector<std::string>;

// Where the columns lie that are read.
struct Columns {
  size_t count = 0, first = 0;
  std::optional<size_t> second, label;
  bool is_gold = false;  // `-` is no label

  explicit Columns(const Cells& header) : count(header.size()), header_(header) {
    constexpr std::pair<std::string_view, std::string_view> pairs[] = {{"sentence1", "sentence2"},
                                                                       {"question1", "question2"},
                                                                       {"question", "sentence"},
                                                                       {"premise", "hypothesis"},
                                                                       {"#1 String", "#2 String"}};
    for (const auto& [one, two] : pairs) {
      if (second || !find(one) || !find(two)) continue;
      first = *find(one);
      second = find(two);
    }
    if (!second) first = find("sentence").value_or(count);
    for (const char* name : {"gold_label", "label", "is_duplicate", "Quality"})
      if (!label) label = find(name);
    is_gold = label && header[*label] == "gold_label";
  }

 private:
  std::optional<size_t> find(std::string_view name) const {
    const auto found = std::ranges::find(header_, name);
    if (found == header_.end()) return {};
    return static_cast<size_t>(found - header_.begin());
  }
  const Cells& header_;
};

// A label that is a number of any kind; nothing for words.
std::optional<double> as_number(std::string_view text) {
  if (text.find_first_of("0123456789.-") != 0) return {};  // "nan", say
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return -1;
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// The labels of a file as written, and their lines.
class Labels {
 public:
  explicit Labels(std::string file) : file_(std::move(file)) {}

  // The first label decides whether all are numbers.
  void add(std::string_view label, size_t line) {
    const auto number = as_number(label);
    if (labels_.empty()) are_numbers_ = number.has_value();
    const bool whole = number && *number >= 0 && *number < max_classes &&
                       label.find_first_not_of("0123456789") == label.npos;
    const bool word = !number && !label.empty() && label.front() != ' ' && label.back() != ' ';
    check<FileError>(are_numbers_ ? whole : word, "load_sentences",
                     "{}:{} must have a label that is a {}, got `{}`", file_, line,
                     are_numbers_ ? "whole number in [0, 10000)" : "word", label);
    labels_.push_back(number ? std::to_string(static_cast<int32_t>(*number)) : std::string(label));
    lines_.push_back(line);
  }

  // Sets the classes and their names.
  void finish(std::span<const std::string> known, SentenceDataset& data) const {
    data.class_names.assign(known.begin(), known.end());
    if (known.empty()) data.class_names = are_numbers_ ? numbers() : words();
    check<FileError>(data.class_names.size() <= max_classes, "load_sentences",
                     "{} must have at most {} different labels, got {}", file_, max_classes,
                     data.class_names.size());
    std::unordered_map<std::string_view, int32_t> classes;
    for (const std::string& name : data.class_names)
      classes.emplace(name, static_cast<int32_t>(classes.size()));
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto found = classes.find(labels_[i]);
      check<FileError>(found != classes.end(), "load_sentences",
                       "{}:{} must have a label of the training data, got `{}`", file_, lines_[i],
                       labels_[i]);
      data.labels.push_back(found->second);
    }
  }

 private:
  std::vector<std::string> numbers() const {
    std::vector<std::string> names;
    int32_t most = -1;
    for (const std::string& label : labels_) most = std::max(most, std::stoi(label));
    for (int32_t i = 0; i <= most; ++i) names.push_back(std::to_string(i));
    return names;
  }
  std::vector<std::string> words() const {
    std::vector<std::string> names = labels_;
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  std::string file_;
  bool are_numbers_ = false;
  std::vector<std::string> labels_;
  std::vector<size_t> lines_;
};

}  // namespace

SentenceDataset load_sentences(const std::filesystem::path& file,
                               std::span<const std::string> class_names) {
  const Table table = read_table(file);
  const Cells& header = table.rows[0];
  const Columns columns(header);
  check<FileError>(columns.first < columns.count, "load_sentences",
                   "{}:1 must name a column `sentence`, or two as `sentence1` and `sentence2`, got "
                   "`{}`; columns are separated by tabs, in .csv files by commas",
                   file.string(), fmt::join(header, "`, `"));
  SentenceDataset data;
  Labels labels(file.string());
  for (size_t i = 1; i < table.rows.size(); ++i) {
    const Cells& cells = table.rows[i];
    const size_t line = table.lines[i];
    check<FileError>(cells.size() == columns.count, "load_sentences",
                     "{}:{} must have {} columns as the header has, got {}", file.string(), line,
                     columns.count, cells.size());
    if (columns.is_gold && cells[*columns.label] == "-") continue;
    data.sentences.emplace_back(cells[columns.first]);
    if (columns.second) data.seconds.emplace_back(cells[*columns.second]);
    if (columns.label) labels.add(cells[*columns.label], line);
  }
  check<FileError>(data.size() > 0, "load_sentences", "{} must have a row below its header",
                   file.string());
  labels.finish(class_names, data);
  return data;
}

}  // namespace rw
