#include "rewind/backends/listing.h"

#include <algorithm>
#include <cctype>

namespace rw {

namespace {

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

}  // namespace

bool device_matches(const std::string& name, const std::string& uuid, size_t index,
                    const std::string& choice) {
  if (choice.starts_with("uuid=")) return uuid == lower(choice.substr(5));
  if (!choice.empty() && choice.find_first_not_of("0123456789") == std::string::npos)
    return std::to_string(index) == choice;
  return lower(name).find(lower(choice)) != std::string::npos;
}

}  // namespace rw
