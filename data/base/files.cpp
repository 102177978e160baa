#include "data/base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unistd.h>
#include <zlib.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/files/cache.h"
#include "core/files/file.h"
#include "data/base/unicode.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// The size that any gzip file may expand to, and the size for each byte of the file.
constexpr uint64_t plain_floor = uint64_t{64} << 20, most_inflation = 64;

// Expands a file of `stored` bytes with zlib.
std::vector<uint8_t> read_all(gzFile file, const fs::path& path, uint64_t stored, uint64_t most) {
  // There are many small files, and a megabyte takes longer to clear than most of them to read.
  const size_t chunk = std::clamp<uint64_t>(stored + 1, 4096, 1 << 20);
  std::vector<uint8_t> bytes;
  for (int got = 1; got > 0;) {
    const size_t before = bytes.size();
    bytes.resize(before + chunk);
    got = gzread(file, bytes.data() + before, static_cast<unsigned>(chunk));
    bytes.resize(before + static_cast<size_t>(std::max(got, 0)));
    check<FileError>(bytes.size() <= most, "read_file",
                     "{} may hold at most {} bytes of this kind of data, and holds more",
                     path.string(), most);
    const bool plain = gzdirect(file) != 0;
    const bool usual = bytes.size() <= plain_floor || bytes.size() / most_inflation <= stored;
    check<FileError>(plain || usual, "read_file",
                     "{} holds more than 64 MiB and {} times its {} bytes; decompress it (gunzip) "
                     "if it is to be trusted",
                     path.string(), most_inflation, stored);
    if (before == 0 && plain && stored <= most) bytes.reserve(stored + chunk);
  }
  return bytes;
}

}  // namespace

std::vector<uint8_t> read_file(const fs::path& path, uint64_t most) {
  std::error_code unknown;
  const bool there = fs::is_regular_file(path, unknown);
  const uint64_t stored = there ? fs::file_size(path, unknown) : 0;
  check<FileError>(there && !unknown, "read_file", "{} is not there, or not a file", path.string());
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  check<FileError>(file != nullptr, "read_file", "cannot open {}: {}", path.string(),
                   std::strerror(errno));
  std::vector<uint8_t> bytes;
  try {
    bytes = read_all(file.get(), path, stored, most);
  } catch (const std::bad_alloc&) {
    fail<OutOfMemory>("read_file", "the host must have memory for the {} bytes of {}", stored,
                      path.string());
  } catch (const std::length_error&) {  // more than memory can have
    fail<OutOfMemory>("read_file", "the host must have memory for the {} bytes of {}", stored,
                      path.string());
  }
  // A compressed file that ends early reads short without an error code.
  int error = Z_OK;
  const char* message = gzerror(file.get(), &error);
  check<FileError>(error == Z_OK, "read_file", "{} is damaged or cut short: {}", path.string(),
                   error == Z_ERRNO ? std::strerror(errno) : message);
  return bytes;
}

namespace {

// The name of a wider encoding, as iconv has it; empty for text of bytes. Without a mark, ASCII in
// 16 bits has a zero in every other byte.
std::string_view wide_encoding_of(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> marks[] = {
      {{"\xff\xfe\0\0", 4}, "UTF-32"},
      {{"\0\0\xfe\xff", 4}, "UTF-32"},
      {"\xff\xfe", "UTF-16"},
      {"\xfe\xff", "UTF-16"}};
  for (const auto& [mark, name] : marks)
    if (text.starts_with(mark)) return name;
  const std::string_view start = text.substr(0, 1000);
  size_t zeros[2] = {};  // at even and at odd places
  for (size_t i = 0; i < start.size(); ++i) zeros[i % 2] += start[i] == '\0';
  const size_t many = (start.size() + 3) / 4;
  if (zeros[1] > many && zeros[0] == 0) return "UTF-16LE";
  if (zeros[0] > many && zeros[1] == 0) return "UTF-16BE";
  return {};
}

// Refuses the first byte of `line` that is not UTF-8.
void check_line(std::string_view line, size_t number, const fs::path& path) {
  Character c;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = at;
    check<FileError>(next_character(line, at, c), "read_text",
                     "{}:{} must be UTF-8, got the byte 0x{:02x} as byte {} of the line; if the "
                     "text is of Windows: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW_FILE",
                     path.string(), number, static_cast<unsigned char>(line[begin]), begin + 1);
    check<FileError>(c.code != 0, "read_text",
                     "{}:{} must be a text file, but has NUL bytes, the first as byte {} of the "
                     "line",
                     path.string(), number, begin + 1);
  }
}

}  // namespace

std::string read_text(const fs::path& path, uint64_t most) {
  const std::vector<uint8_t> bytes = read_file(path, most);
  std::string text(bytes.begin(), bytes.end());
  const std::string_view wide = wide_encoding_of(text);
  check<FileError>(wide.empty(), "read_text",
                   "{} must be UTF-8, got {}; convert it: iconv -f {} -t UTF-8 FILE > NEW_FILE",
                   path.string(), wide, wide);
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  size_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    check_line(std::string_view(text).substr(at, end - at), line, path);
    at = end + 1;
  }
  return text;
}

bool is_folder(const fs::path& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

uint64_t file_hash(const fs::path& path) {
  const InputFile file(path);
  std::vector<std::byte> piece(size_t{1} << 20);
  uint64_t hash = fnv1a_start;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), file.size() - at));
    file.read(at, piece);
    hash = fnv1a(hash, fnv1a(piece));
  }
  return hash;
}

void write_file(const fs::path& path, std::span<const uint8_t> bytes) {
  AtomicFile file(path);
  file.write(std::as_bytes(bytes));
  file.commit();
}

void write_file(const fs::path& path, std::string_view text) {
  write_file(path, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

fs::path cache_directory() {
  return make_cache_directory();
}

namespace {

// A folder that goes when the program ends. A copy of the process leaves it alone.
struct PassingFolder {
  const pid_t owner = getpid();
  const fs::path path;

  PassingFolder() : path(made()) {}
  ~PassingFolder() {
    std::error_code ignored;
    if (getpid() == owner) fs::remove_all(path, ignored);
  }

  static fs::path made() {
    std::error_code none;
    std::string name = (fs::temp_directory_path(none) / "rewind-XXXXXX").string();
    if (none) name = "/tmp/rewind-XXXXXX";
    check<FileError>(mkdtemp(name.data()) != nullptr, "synthetic_data_directory",
                     "there must be a folder for temporary files, got '{}': {}; set TMPDIR", name,
                     std::strerror(errno));
    return name;
  }
};

}  // namespace

fs::path synthetic_data_directory() {
  std::string fault;
  try {
    const fs::path folder = make_cache_directory();
    if (access(folder.c_str(), W_OK) == 0) return folder;
    fault = fmt::format("'{}': {}", folder.string(), std::strerror(errno));
  } catch (const FileError& error) {
    fault = error.what();
  }
  static const PassingFolder passing;
  std::fprintf(stderr, "warning: the synthetic data of this run are not kept for later ones: %s\n",
               fault.c_str());
  return passing.path;
}

}  // namespace rw
