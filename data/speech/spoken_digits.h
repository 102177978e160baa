// Strings of digits, spoken by a speech synthesiser, so that recognisers can be tried without a
// download. They are written in LibriSpeech's format once and then read like it.
#pragma once

#include <filesystem>
#include <functional>

#include "../base/dataset.h"

namespace rw {

// A folder below `root` with train/ and test/ as list_speech() takes them, made if it does not
// exist, whole or not at all. Each string has 2 to 6 words "zero" to "nine". espeak-ng speaks it in
// one of eight accents of English with one of its voices, at 130 to 220 words per minute and
// several pitches, at full loudness or up to 20 dB below, with white noise 8 to 30 dB below the
// voice. No voice of test/ is in train/; accents are shared. FileError if espeak-ng is not
// installed or fails. `on_start` is called first if the folder must be made.
std::filesystem::path spoken_digits(
    const std::filesystem::path& root, const SyntheticSizes& sizes = {.train = 2000, .test = 200},
    const std::function<void(const std::filesystem::path&)>& on_start = {});

}  // namespace rw
