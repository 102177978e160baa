#include "nn/speech/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/autocast.h"
#include "ops/layout/indexing.h"

namespace rw {

namespace {

double to_mel(double hz) {
  return 2595 * std::log10(1 + hz / 700);
}
double to_hz(double mel) {
  return 700 * (std::pow(10, mel / 2595) - 1);
}

int64_t bins_of(const LogMelOptions& o) {
  return o.window / 2 + 1;
}

const LogMelOptions& checked(const LogMelOptions& o) {
  check_positive("LogMel",
                 {{"rate", o.rate}, {"window", o.window}, {"hop", o.hop}, {"mels", o.mels}});
  check(0 <= o.low && o.low < o.high && o.high <= static_cast<double>(o.rate) / 2, "LogMel",
        "0 <= low < high <= rate / 2 must hold, got {} and {} Hz at {}", o.low, o.high, o.rate);
  check(o.floor > 0, "LogMel", "floor must be positive, got {}", o.floor);
  return o;
}

// It lives as long as the module, like parameters.
Tensor constant(const std::vector<float>& values, const Shape& shape) {
  const PurposeScope scope(Purpose::parameter);
  return tensor(values, shape);
}

Tensor fourier_basis(const LogMelOptions& o) {
  const int64_t bins = bins_of(o);
  std::vector<float> values(static_cast<size_t>(o.window * 2 * bins));
  for (int64_t n = 0; n < o.window; ++n) {
    const auto turn = 2 * std::numbers::pi / static_cast<double>(o.window);
    const double hann = 0.5 - 0.5 * std::cos(turn * static_cast<double>(n));
    float* row = &values[static_cast<size_t>(n * 2 * bins)];
    for (int64_t k = 0; k < bins; ++k) {
      const double angle = turn * static_cast<double>(n * k % o.window);
      row[k] = static_cast<float>(hann * std::cos(angle));
      row[bins + k] = static_cast<float>(hann * std::sin(angle));
    }
  }
  return constant(values, {o.window, 2 * bins});
}

Tensor filter_bank(const LogMelOptions& o) {
  const int64_t bins = bins_of(o);
  const double first = to_mel(o.low),
               step = (to_mel(o.high) - first) / static_cast<double>(o.mels + 1);
  std::vector<float> values(static_cast<size_t>(2 * bins * o.mels));
  for (int64_t k = 0; k < bins; ++k)
    for (int64_t m = 0; m < o.mels; ++m) {
      const auto point = [&](int64_t i) {
        return to_hz(first + step * static_cast<double>(m + i));
      };
      const double hz = static_cast<double>(k * o.rate) / static_cast<double>(o.window);
      const double up = (hz - point(0)) / (point(1) - point(0));
      const double down = (point(2) - hz) / (point(2) - point(1));
      const auto weight = static_cast<float>(std::max(0.0, std::min(up, down)));
      for (const int64_t row : {k, bins + k})
        values[static_cast<size_t>(row * o.mels + m)] = weight;
    }
  return constant(values, {2 * bins, o.mels});
}

}  // namespace

LogMel::LogMel(const LogMelOptions& options)
    : options_(checked(options)), basis_(fourier_basis(options)), bank_(filter_bank(options)) {
  mean = register_buffer("mean", {options.mels}, 0);
  std = register_buffer("std", {options.mels}, 1);
}

int64_t LogMel::frames(int64_t samples) const {
  return samples < options_.window ? 0 : (samples - options_.window) / options_.hop + 1;
}

int64_t LogMel::samples(int64_t frames) const {
  return options_.hop * (frames - 1) + options_.window;
}

// [N, S] -> [N, T, mels].
Tensor LogMel::log_power(const Tensor& sound) const {
  Tensor spectrum = matmul(unfold(sound, 1, options_.window, options_.hop), basis_);
  return log(affine(matmul(square(std::move(spectrum)), bank_), 1, options_.floor));
}

Tensor LogMel::forward(Tensor sound) {
  check<ShapeError>(sound.rank() == 2 && sound.size(1) >= options_.window, "LogMel",
                    "needs sound [N, S] of {} samples or more, got {}", options_.window, sound);
  const Autocast plain(DType::f32);
  constexpr int64_t most = int64_t{1} << 20;
  const int64_t bytes = sound.size(0) * 2 * bins_of(options_) * static_cast<int64_t>(sizeof(float));
  const int64_t step = std::max<int64_t>(1, most / std::max<int64_t>(1, bytes));
  TensorList parts;
  for (int64_t first = 0, all = frames(sound.size(1)); first < all; first += step) {
    const int64_t count = std::min(step, all - first), begin = first * options_.hop;
    parts.push_back(log_power(slice(sound, 1, begin, begin + samples(count))));
  }
  Tensor all = parts.size() == 1 ? std::move(parts[0]) : concat(std::move(parts), 1);
  return div(sub(std::move(all), mean), std);
}

void LogMel::Statistics::add(const Tensor& x, std::span<const int32_t> counts) {
  check<ShapeError>(x.rank() == 3 && x.size(0) == static_cast<int64_t>(counts.size()), "LogMel",
                    "needs features [N, T, mels] with a count for each of N rows, got {} and {}", x,
                    counts.size());
  const auto channels = static_cast<size_t>(x.size(2)),
             row = static_cast<size_t>(x.size(1)) * channels;
  sum_.resize(channels), squares_.resize(channels);
  const std::vector<float> values = x.to_vector();
  for (size_t n = 0; n < counts.size(); ++n) {
    check<ShapeError>(counts[n] >= 0 && counts[n] <= x.size(1), "LogMel",
                      "counts must be 0 to {} frames, got {}", x.size(1), counts[n]);
    frames_ += counts[n];
    for (size_t i = 0; i < static_cast<size_t>(counts[n]) * channels; ++i) {
      const double value = values[n * row + i];
      sum_[i % channels] += value;
      squares_[i % channels] += value * value;
    }
  }
}

std::vector<float> LogMel::Statistics::mean() const {
  std::vector<float> mean;
  for (const double sum : sum_) mean.push_back(static_cast<float>(sum / std::max(1.0, frames_)));
  return mean;
}

std::vector<float> LogMel::Statistics::std() const {
  constexpr double least = 1e-3;
  std::vector<float> std;
  for (size_t c = 0; c < sum_.size(); ++c) {
    const double n = std::max(1.0, frames_), mean = sum_[c] / n;
    std.push_back(
        static_cast<float>(std::sqrt(std::max(squares_[c] / n - mean * mean, least * least))));
  }
  return std;
}

void LogMel::set_statistics(const Statistics& statistics) {
  mean.copy_from(std::span<const float>(statistics.mean()));
  std.copy_from(std::span<const float>(statistics.std()));
}

}  // namespace rw
