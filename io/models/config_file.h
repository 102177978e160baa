// Hugging Face's config.json, as far as all models read it alike.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>

#include "../../core/files/file.h"
#include "../../core/files/json_file.h"

namespace rw {

// The object that a configuration file of `model` holds. Throws FileError, from `op`. Not
// ordered_json: looking for keys there takes time in proportion to their number.
inline nlohmann::json read_config(const char* op, const char* model,
                                  const std::filesystem::path& file) {
  const std::string text = read_config_text(file);
  try {
    nlohmann::json json = nlohmann::json::parse(text);
    check<FileError>(json.is_object(), op, "'{}' is not a {} configuration but {}", file.string(),
                     model, describe_json(json));
    return json;
  } catch (const nlohmann::json::exception& error) {
    fail<FileError>(op, "'{}' is not a {} configuration: {}", file.string(), model, error.what());
  }
}

// FileError if the file names another value for a setting that the model supports with only one
// value.
inline void check_settings(const char* op, const nlohmann::json& json,
                           const nlohmann::ordered_json& settings,
                           const std::filesystem::path& file) {
  for (const auto& [key, wanted] : settings.items())
    if (json.contains(key) && json[key] != nlohmann::json(wanted))
      fail<FileError>(op, "'{}' has {} {}; only {} is supported", file.string(), key,
                      describe_json(json[key]), wanted.dump());
}

}  // namespace rw
