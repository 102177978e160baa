#include "data/text/text.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/base/files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view blanks = " \t\r\f\v";
  const size_t first = line.find_first_not_of(blanks);
  if (first == line.npos) return {};
  return line.substr(first, line.find_last_not_of(blanks) - first + 1);
}

void append_documents(std::string_view text, std::vector<Document>& documents) {
  Document document;
  const auto finish = [&] {
    if (!document.empty()) documents.push_back(std::move(document));
    document.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (line.empty()) {
      finish();
    } else {
      document.emplace_back(line);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  finish();
}

}  // namespace

std::vector<std::string> read_texts(std::span<const fs::path> files) {
  std::vector<std::string> texts;
  for (const fs::path& file : files) texts.push_back(read_text(file));
  return texts;
}

std::vector<Document> read_documents(std::span<const fs::path> files) {
  std::vector<Document> documents;
  for (const fs::path& file : files) append_documents(read_text(file), documents);
  check<FileError>(!documents.empty(), "read_documents",
                   "there must be text to read, got {} files without", files.size());
  return documents;
}

std::vector<fs::path> default_text_files() {
  const fs::path folder = "/usr/share/common-licenses";
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  check<FileError>(!files.empty(), "default_text_files",
                   "{} must hold texts, and has none here; name text files instead",
                   folder.string());
  std::ranges::sort(files);
  return files;
}

}  // namespace rw
