// Transcripts as labels of a recogniser: words or characters of a list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// The meaning of a label: a word, or a character.
enum class SpeechUnit { word, character };

// The labels of a recogniser: 1 and up for the units in order, 0 for the blank.
class SpeechUnits {
 public:
  // ValueError: no units, a unit twice, an empty unit, words that contain spaces, or characters
  // beyond ASCII.
  SpeechUnits(SpeechUnit unit, std::vector<std::string> names);

  // The units that texts consist of, sorted.
  static SpeechUnits of(SpeechUnit unit, std::span<const std::string> texts);

  // ValueError with the unit that is not in the list.
  std::vector<int32_t> encode(std::string_view text) const;
  // The text of labels; blanks are left out. ValueError for labels that stand for nothing.
  std::string decode(std::span<const int32_t> labels) const;

  int64_t classes() const { return static_cast<int64_t>(names_.size()) + 1; }  // with the blank
  SpeechUnit unit() const { return unit_; }                         // the meaning of a label
  const std::vector<std::string>& names() const { return names_; }  // of the labels from 1 on

 private:
  SpeechUnit unit_;
  std::vector<std::string> names_;
};

// Lower-cases a text (in ASCII), and reduces spaces around and between words to one.
std::string normalised_transcript(std::string_view text);

}  // namespace rw
