// Reads and writes sound files through libsndfile: WAV, FLAC, Ogg and others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace rw {

// The rate that speech is read at, in samples per second.
inline constexpr int speech_rate = 16000;

// One channel; samples are in [-1, 1], or slightly outside if a file was resampled.
struct Audio {
  std::vector<float> samples;  // one after another in time
  int rate = speech_rate;      // samples per second

  double seconds() const { return static_cast<double>(samples.size()) / rate; }  // its length
};

// Reads the whole file as the mean of its channels, brought to `rate` by resample_audio(). It may
// have at most an hour at 48 kHz. FileError with the file and the place: it does not exist, is not
// a sound file, is cut short, has no samples, is larger than that, or has samples that are not
// finite or not below 10^6.
Audio read_audio(const std::filesystem::path& file, int rate = speech_rate);
// The number of samples that read_audio() gives, by the file's header. FileError.
int64_t audio_length(const std::filesystem::path& file, int rate = speech_rate);

// Resamples by a sinc under a Hann window, 16 zero crossings wide on each side (Smith and Gossett
// 1984); nothing is left above half the lower rate. ValueError for rates that are not positive, and
// for two with little in common and a large ratio, such as 192001 and 16000 Hz.
Audio resample_audio(const Audio& audio, int rate);

// Writes a WAV file of 16 bits per sample, whole or not at all, and clips what is outside [-1, 1].
// FileError.
void write_wav(const std::filesystem::path& file, const Audio& audio);

}  // namespace rw
