#include "data/speech/transcripts.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"

namespace rw {

namespace {

std::vector<std::string> units_of(SpeechUnit unit, std::string_view text) {
  std::vector<std::string> units;
  if (unit == SpeechUnit::character) {
    for (const char c : text) units.emplace_back(1, c);
    return units;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) units.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return units;
}

}  // namespace

SpeechUnits::SpeechUnits(SpeechUnit unit, std::vector<std::string> names)
    : unit_(unit), names_(std::move(names)) {
  check(!names_.empty(), "SpeechUnits", "there must be a word or character to recognise, got none");
  std::set<std::string_view> seen;
  for (const std::string& name : names_) {
    const bool fits = unit == SpeechUnit::character
                          ? name.size() == 1 && static_cast<unsigned char>(name[0]) < 128
                          : name.find(' ') == std::string::npos;
    check(!name.empty() && fits && seen.insert(name).second, "SpeechUnits",
          "units must be different {}, got {:?} among {}",
          unit == SpeechUnit::character ? "single characters of ASCII" : "words without spaces",
          name, names_.size());
  }
}

SpeechUnits SpeechUnits::of(SpeechUnit unit, std::span<const std::string> texts) {
  std::set<std::string> found;
  for (const std::string& text : texts)
    for (std::string& name : units_of(unit, text)) found.insert(std::move(name));
  return {unit, {found.begin(), found.end()}};
}

std::vector<int32_t> SpeechUnits::encode(std::string_view text) const {
  std::vector<int32_t> labels;
  for (const std::string& name : units_of(unit_, text)) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    check(found != names_.end(), "SpeechUnits", "{:?} must be one of {} known {}, in {:?}", name,
          names_.size(), unit_ == SpeechUnit::word ? "words" : "characters", std::string(text));
    labels.push_back(static_cast<int32_t>(found - names_.begin()) + 1);
  }
  return labels;
}

std::string SpeechUnits::decode(std::span<const int32_t> labels) const {
  std::string text;
  for (const int32_t label : labels) {
    check(label >= 0 && label < classes(), "SpeechUnits", "labels must be in [0, {}), got {}",
          classes(), label);
    if (label == 0) continue;
    if (unit_ == SpeechUnit::word && !text.empty()) text += ' ';
    text += names_[static_cast<size_t>(label) - 1];
  }
  return text;
}

std::string normalised_transcript(std::string_view text) {
  std::string plain(text), result;
  for (char& c : plain) {
    if (c == '\t' || c == '\r' || c == '\n') c = ' ';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  for (const std::string& word : units_of(SpeechUnit::word, plain)) {
    if (!result.empty()) result += ' ';
    result += word;
  }
  return result;
}

}  // namespace rw
