#include "core/files/json_file.h"

#include <algorithm>
#include <fstream>

namespace rw {

std::string read_config_text(const std::filesystem::path& file) {
  constexpr uintmax_t most = 1 << 20;
  std::error_code unknown;
  std::ifstream stream;
  // Opening anything else may block for ever.
  if (std::filesystem::is_regular_file(file, unknown)) stream.open(file, std::ios::binary);
  check<FileError>(stream.is_open(), "json", "'{}' must be a file that can be read", file.string());
  std::string text(std::min(std::filesystem::file_size(file, unknown), most) + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  check<FileError>(!stream.bad() && text.size() <= most, "json",
                   "'{}' must be a configuration of at most {} bytes, and is larger", file.string(),
                   most);
  return text;
}

}  // namespace rw
