// Strings of digits, spoken by a speech synthesiser, so that recognisers can be tried with nothing
// downloaded. They are written in LibriSpeech's format once and then read as that is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace rw {

// How many strings to train and to test with, from which seed.
struct SpokenDigitsSizes {
  int train = 2000, test = 200;
  uint64_t seed = 1;
};

// A folder below `root` with train/ and test/ as list_speech() takes them, made if it is not there
// yet; it is there whole or not at all. Each string is of 2 to 6 words "zero" to "nine", spoken by
// espeak-ng in one of eight accents of English with one of its voices, at 130 to 220 words per
// minute and several pitches, as loud as it may be or up to 20 dB less, with white noise 8 to 30 dB
// below it. No voice of test/ is in train/; accents are shared. FileError where espeak-ng is not
// installed or fails. `on_start` is called first where it must be made.
std::filesystem::path spoken_digits(
    const std::filesystem::path& root, const SpokenDigitsSizes& sizes = {},
    const std::function<void(const std::filesystem::path&)>& on_start = {});

}  // namespace rw
