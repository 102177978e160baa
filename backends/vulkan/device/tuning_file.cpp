#include "backends/vulkan/device/tuning_file.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "backends/vulkan/device/build_id.h"
#include "core/base/environment.h"
#include "core/base/hash.h"
#include "core/files/cache.h"
#include "core/files/json_file.h"

namespace rw::vulkan {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Results for one set of limits are useless with another.
uint64_t tuning_key(const Caps& caps) {
  const std::string text = fmt::format(
      "{} {} {} {} {} {:x} {} {} {} {} {} {} {:016x}", caps.uuid, caps.name, caps.driver,
      caps.driver_version, caps.is_cpu, caps.features, caps.subgroup_size, caps.workgroup_size,
      fmt::join(caps.matrices.f16, "x"), fmt::join(caps.matrices.bf16, "x"), caps.shared_bytes,
      caps.max_threads, build_id());
  return fnv1a(std::as_bytes(std::span(text)));
}

std::string key_text(const Caps& caps) {
  return fmt::format("{:016x}", tuning_key(caps));
}

// Whether a text is as we write it: printable and short.
std::string plain_text(const Json& json, const std::string& what) {
  constexpr size_t most = 200;
  check<FileError>(json.is_string(), "tuning", "{} must be a text, got {}", what,
                   describe_json(json));
  auto text = json.get<std::string>();
  const bool is_plain = text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
                          return c >= ' ' && c <= '~';
                        });
  check<FileError>(is_plain, "tuning", "{} must be printable, of at most {} characters", what,
                   most);
  return text;
}

const Json& member(const Json& json, const char* key, const std::string& file) {
  check<FileError>(json.is_object() && json.contains(key), "tuning",
                   "\"{}\" of '{}' is missing: such files are written by `./rewind tune`", key,
                   file);
  return json[key];
}

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

}  // namespace

Json tuning_json(const Tuning& tuning) {
  Json choices = Json::object();
  for (const auto& [key, choice] : tuning.choices) choices[key] = name(choice);
  Json json = {{"made", tuning.made}, {"choices", std::move(choices)}};
  if (tuning.to_host > 0) json["to_host"] = tuning.to_host;
  if (tuning.from_host > 0) json["from_host"] = tuning.from_host;
  if (tuning.host_updates > 0) json["host_updates"] = tuning.host_updates;
  return json;
}

Tuning parse_tuning(const Json& json, const std::string& file) {
  Tuning tuning;
  tuning.made = plain_text(member(json, "made", file), fmt::format("\"made\" of '{}'", file));
  const Json& choices = member(json, "choices", file);
  check<FileError>(choices.is_object(), "tuning", "\"choices\" of '{}' must be an object, got {}",
                   file, describe_json(choices));
  for (const auto& [key, value] : choices.items()) {
    const std::string what = fmt::format("a choice of '{}'", file);
    const auto choice = parse_choice(plain_text(value, what));
    check<FileError>(choice && *choice != Choice{}, "tuning",
                     "{} must name a way to run products, got {}", what, describe_json(value));
    tuning.choices.emplace(plain_text(key, what), *choice);
  }
  constexpr uint64_t fastest = 1'000'000'000'000'000;
  for (const auto& [key, speed] :
       {std::pair("to_host", &tuning.to_host), std::pair("from_host", &tuning.from_host),
        std::pair("host_updates", &tuning.host_updates)})
    if (json.contains(key))
      *speed =
          bounded_number<uint64_t>(json[key], 1, fastest, fmt::format("\"{}\" of '{}'", key, file));
  return tuning;
}

std::string tuning_file(const Caps& caps) {
  return "tuning-" + key_text(caps) + ".json";
}

Tuning load_tuning(const Caps& caps) {
  return is_without("tuning") ? Tuning{} : read_tuning(caps);
}

Tuning read_tuning(const Caps& caps) {
  const std::optional<std::string> text = read_cache_text(tuning_file(caps));
  if (!text) return {};
  const fs::path file = user_cache_directory() / tuning_file(caps);
  try {
    const Json json = Json::parse(*text);
    const std::string key = plain_text(member(json, "key", file), "\"key\"");
    check<FileError>(key == key_text(caps), "tuning", "it is of another device, driver or build");
    return parse_tuning(json, file);
  } catch (const Json::exception& e) {
    warn_once(
        fmt::format("'{}' is not used: {}; ./rewind tune writes it anew", file.string(), e.what()));
  } catch (const FileError& e) {
    warn_once(
        fmt::format("'{}' is not used: {}; ./rewind tune writes it anew", file.string(), e.what()));
  }
  return {};
}

void save_tuning(const Caps& caps, const Tuning& tuning) {
  Json json = tuning_json(tuning);
  json["key"] = key_text(caps);
  json["device"] = caps.name;
  json["driver"] = caps.driver + " " + caps.driver_version;
  const std::string text = json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
  const fs::path folder = make_cache_directory();
  check<FileError>(write_cache_text(tuning_file(caps), text), "tune",
                   "'{}' must be a folder that can be written; REWIND_CACHE may name another",
                   folder.string());
}

bool forget_tuning(const Caps& caps) {
  return remove_cache(tuning_file(caps));
}

}  // namespace rw::vulkan
