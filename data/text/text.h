// Plain text as documents of sentences.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace rw {

// One sentence (or line) per string, none blank.
using Document = std::vector<std::string>;

// The contents of files, by read_text(). Throws FileError for a file that is missing or is not
// text.
std::vector<std::string> read_texts(std::span<const std::filesystem::path> files);

// A line is a sentence; a blank line and the end of a file end a document. Throws FileError for a
// file that is missing or is not text.
std::vector<Document> read_documents(std::span<const std::filesystem::path> files);

// English text that every Debian has: the licences in /usr/share/common-licenses, each once. Throws
// FileError if there are none.
std::vector<std::filesystem::path> default_text_files();

}  // namespace rw
