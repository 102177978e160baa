#include "data/files.h"

#include <zlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "io/file.h"

namespace rw {

namespace fs = std::filesystem;

std::vector<uint8_t> read_file(const fs::path& path) {
  check<FileError>(fs::is_regular_file(path), "read_file", "{} is not there, or not a file",
                   path.string());
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  check<FileError>(file != nullptr, "read_file", "cannot open {}: {}", path.string(),
                   std::strerror(errno));
  constexpr size_t chunk = 1 << 20;
  std::vector<uint8_t> bytes;
  for (int got = 1; got > 0;) {
    const size_t before = bytes.size();
    bytes.resize(before + chunk);
    got = gzread(file.get(), bytes.data() + before, chunk);
    bytes.resize(before + static_cast<size_t>(got > 0 ? got : 0));
  }
  // A compressed file that ends early reads short without an error code.
  int error = Z_OK;
  const char* message = gzerror(file.get(), &error);
  check<FileError>(error == Z_OK, "read_file", "{} is damaged or cut short: {}", path.string(),
                   error == Z_ERRNO ? std::strerror(errno) : message);
  return bytes;
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
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value ? value : "");
  };
  if (const fs::path p = variable("REWIND_CACHE"); !p.empty()) return p;
  if (const fs::path p = variable("XDG_CACHE_HOME"); !p.empty()) return p / "rewind";
  if (const fs::path p = variable("HOME"); !p.empty()) return p / ".cache" / "rewind";
  return fs::temp_directory_path() / "rewind-cache";
}

}  // namespace rw
