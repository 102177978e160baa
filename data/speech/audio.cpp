#include "data/speech/audio.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <numeric>
#include <sndfile.h>
#include <string>

#include "core/base/error.h"
#include "data/base/files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr int64_t most_frames = int64_t{3600} * 48000;
constexpr int most_channels = 64;
constexpr float most_sample = 1e6f;  // that is not a mistake, and has a power that is a number
constexpr int least_rate = 1000, most_rate = 768000;

// An open sound file whose header is plausible.
class SoundFile {
 public:
  explicit SoundFile(const fs::path& path)
      : name_(path.string()), file_(sf_open(path.c_str(), SFM_READ, &info_), sf_close) {
    std::error_code unknown;
    check<FileError>(fs::is_regular_file(path, unknown), "read_audio",
                     "'{}' is not there, or not a file", name_);
    check<FileError>(file_ != nullptr, "read_audio",
                     "'{}' must be a sound file (WAV, FLAC, Ogg), got: {}", name_,
                     std::string(sf_strerror(nullptr)));
    check<FileError>(info_.samplerate > 0 && info_.channels > 0 && info_.frames > 0, "read_audio",
                     "'{}' must hold samples, got {} of {} channels at {} Hz", name_, info_.frames,
                     info_.channels, info_.samplerate);
    check<FileError>(info_.samplerate >= least_rate && info_.samplerate <= most_rate, "read_audio",
                     "'{}' must be of {} to {} Hz, got {}; convert it", name_, least_rate,
                     most_rate, info_.samplerate);
    check<FileError>(info_.frames <= most_frames && info_.channels <= most_channels, "read_audio",
                     "'{}' must be of {} samples (an hour at 48 kHz) and {} channels at most, got "
                     "{} and {}; cut it",
                     name_, most_frames, most_channels, info_.frames, info_.channels);
  }
  int64_t frames() const { return info_.frames; }
  int rate() const { return info_.samplerate; }

  // Reads the mean of the channels.
  std::vector<float> read() {
    constexpr int64_t most = 1 << 16;
    const auto channels = static_cast<size_t>(info_.channels);
    std::vector<float> samples, part(static_cast<size_t>(most) * channels);
    for (int64_t got = 1; got > 0;) {
      got = sf_readf_float(file_.get(), part.data(), most);
      for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
        float sum = 0;
        for (size_t c = 0; c < channels; ++c) sum += part[i * channels + c];
        check<FileError>(std::abs(sum) < most_sample, "read_audio",
                         "'{}' must hold finite samples, got {} at sample {}", name_, sum,
                         samples.size());
        samples.push_back(sum / static_cast<float>(channels));
      }
    }
    check<FileError>(static_cast<int64_t>(samples.size()) == info_.frames, "read_audio",
                     "'{}' must be whole, got {} of {} samples", name_, samples.size(),
                     info_.frames);
    return samples;
  }

 private:
  std::string name_;
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file_;
};

// The weights of old samples for each new one. They repeat after as many new samples as the new
// rate divided by the common divisor of both rates.
class Kernel {
 public:
  Kernel(int from, int to) : from_(from), to_(to), phases_(to / std::gcd(from, to)) {
    constexpr double crossings = 16;
    const double cutoff = std::min(1.0, static_cast<double>(to) / from);  // of half the old rate
    reach_ = static_cast<int64_t>(std::ceil(crossings / cutoff));
    constexpr int64_t most = 1 << 22;
    check(phases_ * taps() <= most, "resample_audio",
          "rates must have more in common, or less between them, got {} and {} Hz", from, to);
    for (int64_t i = 0; i < phases_; ++i)
      for (int64_t k = 0; k < taps(); ++k) {
        const double behind = static_cast<double>(i * from % to) / to;
        const double x = (static_cast<double>(k - reach_) - behind) * cutoff;
        const double angle = std::numbers::pi * x, sinc = x == 0 ? 1 : std::sin(angle) / angle;
        const double window = std::abs(x) < crossings ? 0.5 + 0.5 * std::cos(angle / crossings) : 0;
        weights_.push_back(static_cast<float>(cutoff * sinc * window));
      }
  }

  // For new sample i: the number of the first old sample, and the weights from there on.
  std::pair<int64_t, std::span<const float>> at(int64_t i) const {
    const auto row = static_cast<size_t>(i % phases_ * taps());
    return {i * from_ / to_ - reach_,
            std::span(weights_).subspan(row, static_cast<size_t>(taps()))};
  }

 private:
  int64_t taps() const { return 2 * reach_ + 2; }

  const int64_t from_, to_, phases_;
  int64_t reach_;
  std::vector<float> weights_;  // [phases, taps]
};

int64_t resampled_length(int64_t samples, int from, int to) {
  return std::max<int64_t>(1, samples * to / from);
}

}  // namespace

int64_t audio_length(const fs::path& file, int rate) {
  const SoundFile sound(file);
  return resampled_length(sound.frames(), sound.rate(), rate);
}

Audio read_audio(const fs::path& file, int rate) {
  SoundFile sound(file);
  try {
    return resample_audio({sound.read(), sound.rate()}, rate);
  } catch (const ValueError& error) {
    fail<FileError>("read_audio", "'{}' must be converted first: {}", file.string(), error.what());
  }
}

Audio resample_audio(const Audio& audio, int rate) {
  check(rate > 0 && audio.rate > 0, "resample_audio", "rates must be positive, got {} and {}",
        audio.rate, rate);
  if (rate == audio.rate) return audio;
  const auto n = static_cast<int64_t>(audio.samples.size());
  Audio result{{}, rate};
  if (n == 0) return result;
  const Kernel kernel(audio.rate, rate);
  const int64_t length = resampled_length(n, audio.rate, rate);
  result.samples.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    const auto [first, taps] = kernel.at(i);
    float sum = 0;
    const int64_t begin = std::max<int64_t>(0, -first);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(taps.size()), n - first);
    for (int64_t k = begin; k < end; ++k)
      sum += taps[static_cast<size_t>(k)] * audio.samples[static_cast<size_t>(first + k)];
    result.samples.push_back(sum);
  }
  return result;
}

void write_wav(const fs::path& file, const Audio& audio) {
  std::vector<uint8_t> bytes;
  const auto put = [&](uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
  };
  const auto text = [&](std::string_view word) {
    bytes.insert(bytes.end(), word.begin(), word.end());
  };
  const auto rate = static_cast<uint32_t>(audio.rate);
  const auto size = static_cast<uint32_t>(2 * audio.samples.size());
  text("RIFF"), put(36 + size, 4), text("WAVEfmt "), put(16, 4);
  put(1, 2), put(1, 2), put(rate, 4), put(2 * rate, 4), put(2, 2), put(16, 2);
  text("data"), put(size, 4);
  for (const float x : audio.samples)
    put(static_cast<uint32_t>(std::lround(std::clamp(x, -1.0f, 1.0f) * 32767)), 2);
  write_file(file, bytes);
}

}  // namespace rw
