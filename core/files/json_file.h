// JSON files that people edit, or that come from elsewhere; nothing in them is trusted.
#pragma once

#include <cmath>
#include <concepts>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>

#include "../base/error.h"

namespace rw {

// Returns the text of a configuration file, which must be a regular file of at most 1 MiB. Throws
// FileError.
std::string read_config_text(const std::filesystem::path& file);

// Describes a value, short enough for a message. `Json`, here and below, is any
// nlohmann::basic_json: this folder does not know the library.
template <class Json>
std::string describe_json(const Json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  const std::string text = value.dump(-1, ' ', true);  // ASCII, which may be cut anywhere
  constexpr size_t most = 60;
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// Returns a number within [low, high], an integer if T is one; `what` names it and its file. Throws
// a FileError with the range and the value.
template <class T, class Json>
T bounded_number(const Json& value, std::type_identity_t<T> low, std::type_identity_t<T> high,
                 const std::string& what) {
  bool good = false;
  T number{};
  if constexpr (std::floating_point<T>) {
    number = value.is_number() ? value.template get<T>() : T{};
    good = value.is_number() && number >= low && number <= high;
  } else {
    const auto take = [&](auto found) {
      good = std::cmp_greater_equal(found, low) && std::cmp_less_equal(found, high);
      if (good) number = static_cast<T>(found);
    };
    if (value.is_number_unsigned())
      take(value.template get<typename Json::number_unsigned_t>());
    else if (value.is_number_integer())
      take(value.template get<typename Json::number_integer_t>());
  }
  check<FileError>(good, "json", "{} must be a {}number in [{}, {}], got {}", what,
                   std::integral<T> ? "whole " : "", low, high, describe_json(value));
  return number;
}

// Returns the member `key` of an object as a bounded_number. Throws FileError if it is missing.
template <class T, class Json>
T json_number(const Json& object, const std::string& key, std::type_identity_t<T> low,
              std::type_identity_t<T> high, const std::string& file) {
  const std::string what = fmt::format("{:?} of '{}'", key, file);
  check<FileError>(object.is_object() && object.contains(key), "json",
                   "{} must be a number in [{}, {}], it is not there", what, low, high);
  return bounded_number<T>(object[key], low, high, what);
}

}  // namespace rw
