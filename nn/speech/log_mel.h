// Log-mel features of sound, computed by ops: on the device, and with a gradient.
#pragma once

#include <span>
#include <vector>

#include "../../ops/ops.h"
#include "../module.h"

namespace rw {

// The way in which frames are made. The conventions are those of torchaudio's
// MelSpectrogram(center=False).
struct LogMelOptions {
  int64_t rate = 16000;          // samples per second
  int64_t window = 400;          // samples of a frame, under a periodic Hann window; also the DFT's
  int64_t hop = 160;             // samples from one frame to the next
  int64_t mels = 40;             // channels
  double low = 20, high = 8000;  // Hz, where the first triangle begins and the last one ends
  float floor = 1e-5f;           // added to the power of a channel before the logarithm
};

//! torch: none
// Sound [N, S] f32 in [-1, 1] -> [N, T, mels] f32, T = (S - window) / hop + 1 rounded down: frame t
// begins at sample hop * t, so sound may come in parts. It takes the power spectrum of each frame,
// as one product with cosines and sines; weighs it by triangles of height 1 between points that are
// evenly spaced on HTK's scale 2595 log10(1 + f / 700); takes log(power + floor); subtracts `mean`
// and divides by `std`. It takes some frames at a time, so about 1 MiB of spectra exists at once.
// ShapeError for other ranks and less than a window; ValueError for impossible options.
class LogMel : public Module {
 public:
  explicit LogMel(const LogMelOptions& options = {});
  Tensor forward(Tensor sound) override;

  // Mean and standard deviation of each channel, collected on the host.
  class Statistics {
   public:
    // Adds the first counts[n] frames of each row n of forward()'s result. Waits for the device.
    // ShapeError.
    void add(const Tensor& x, std::span<const int32_t> counts);
    std::vector<float> mean() const;
    std::vector<float> std() const;  // at least 1e-3, for channels that are silent throughout

   private:
    std::vector<double> sum_, squares_;  // [mels]
    double frames_ = 0;
  };
  // Makes forward() bring these means and deviations to 0 and 1. They must be of features that were
  // made with `mean` 0 and `std` 1.
  void set_statistics(const Statistics& statistics);

  int64_t frames(int64_t samples) const;  // T for so many samples, 0 for less than a window
  // The fewest samples that give so many frames, which must be positive.
  int64_t samples(int64_t frames) const;
  const LogMelOptions& options() const { return options_; }  // those with which it was made

  Tensor mean, std;  // buffers [mels]; 0 and 1 at first

 private:
  Tensor log_power(const Tensor& sound) const;

  LogMelOptions options_;
  Tensor basis_;  // [window, 2 bins]: the window times cosines, then times sines
  Tensor bank_;   // [2 bins, mels]: the triangles, twice
};

}  // namespace rw
