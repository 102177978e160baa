// Sound files in and out, by libsndfile: WAV, FLAC, Ogg and what else it reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace rw {

// The rate that speech is read at, in samples per second.
inline constexpr int speech_rate = 16000;

// One channel; samples are in [-1, 1], or a little outside where a file was resampled.
struct Audio {
  std::vector<float> samples;  // one after another in time
  int rate = speech_rate;      // samples per second

  double seconds() const { return static_cast<double>(samples.size()) / rate; }  // its length
};

// The whole file, the mean of its channels, brought to `rate` by resample_audio(). At most an hour
// at 48 kHz. FileError naming file and place: it is not there, no sound file, cut short, without
// samples, larger than that, or with samples that are not finite or not below
// 10^6.
Audio read_audio(const std::filesystem::path& file, int rate = speech_rate);
// How many samples read_audio() gives, by what the file's header says. FileError.
int64_t audio_length(const std::filesystem::path& file, int rate = speech_rate);

// At another rate, by a sinc under a Hann window, 16 zero crossings wide on each side (Smith and
// Gossett 1984); above half the lower rate nothing is left. ValueError for rates that are not
// positive, and for two with little in common and much between them, as 192001 and 16000 Hz.
Audio resample_audio(const Audio& audio, int rate);

// A WAV file of 16 bits per sample, which is written whole or not at all; what is outside [-1, 1]
// is clipped. FileError.
void write_wav(const std::filesystem::path& file, const Audio& audio);

}  // namespace rw
