#include "backends/monitor/system_text.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace rw {

namespace fs = std::filesystem;

std::string_view trim(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // catches exceptions that iterators would throw
  return std::move(text).str();
}

std::optional<double> read_number(const fs::path& path) {
  const std::string text = read_text(path);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  return value;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    all.push_back(it->path());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace rw
