#include "io/models/speech.h"

#include <nlohmann/json.hpp>

#include "core/files/json_file.h"

namespace rw {

namespace {

using nlohmann::json;

constexpr const char* entry = "speech_recognizer";

}  // namespace

Metadata to_metadata(const StoredRecognizer& recognizer) {
  const SpeechConfig& c = recognizer.config;
  const json about = {{"loss", c.loss == SpeechLoss::ctc ? "ctc" : "rnnt"},
                      {"unit", recognizer.has_words ? "word" : "character"},
                      {"units", recognizer.units},
                      {"channels", c.channels},
                      {"kernel", c.kernel},
                      {"hidden", c.hidden},
                      {"layers", c.layers},
                      {"rate", c.features.rate},
                      {"window", c.features.window},
                      {"hop", c.features.hop},
                      {"mels", c.features.mels},
                      {"low", c.features.low},
                      {"high", c.features.high},
                      {"floor", c.features.floor}};
  return {{entry, about.dump()}};
}

StoredRecognizer read_recognizer(const SafetensorsFile& file) {
  const std::string& path = file.path();
  const auto found = file.metadata().find(entry);
  check<FileError>(found != file.metadata().end(), "load",
                   "'{}' must hold a speech recogniser; asr --save makes one", path);
  constexpr size_t most_text = 1 << 22;
  const json about =
      found->second.size() <= most_text ? json::parse(found->second, nullptr, false) : json();
  check<FileError>(about.is_object(), "load",
                   "{:?} in the metadata of '{}' must be an object, got {}", std::string(entry),
                   path, describe_json(about));
  const auto one_of = [&](const char* key, const char* first, const char* second) {
    const json value = about.value(key, json());
    check<FileError>(value == first || value == second, "load",
                     "{:?} of '{}' must be {} or {}, got {}", std::string(key), path, first, second,
                     describe_json(value));
    return value == first;
  };
  const auto whole = [&](const char* key, int64_t high) {
    return json_number<int64_t>(about, key, 1, high, path);
  };
  StoredRecognizer stored;
  SpeechConfig& c = stored.config;
  c.loss = one_of("loss", "ctc", "rnnt") ? SpeechLoss::ctc : SpeechLoss::rnnt;
  stored.has_words = one_of("unit", "word", "character");
  constexpr int64_t most = 1 << 14, most_rate = 1 << 20;
  c.channels = whole("channels", most), c.kernel = whole("kernel", most);
  c.hidden = whole("hidden", most), c.layers = whole("layers", 64);
  LogMelOptions& f = c.features;
  f.rate = whole("rate", most_rate), f.window = whole("window", most);
  f.hop = whole("hop", most), f.mels = whole("mels", most);
  const double nyquist = static_cast<double>(f.rate) / 2;
  f.low = json_number<double>(about, "low", 0, nyquist, path);
  f.high = json_number<double>(about, "high", f.low, nyquist, path);
  f.floor = json_number<float>(about, "floor", 1e-30f, 1, path);
  const json units = about.value("units", json());
  check<FileError>(units.is_array() && !units.empty(), "load",
                   "\"units\" of '{}' must be a list of words or characters, got {}", path,
                   describe_json(units));
  for (const json& unit : units) {
    check<FileError>(unit.is_string(), "load", "the units of '{}' must be texts, got {}", path,
                     describe_json(unit));
    stored.units.push_back(unit);
  }
  c.classes = static_cast<int64_t>(stored.units.size()) + 1;
  return stored;
}

}  // namespace rw
