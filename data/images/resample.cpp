#include "data/images/resample.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/base/error.h"

namespace rw {

namespace {

// The input pixels, from `first` on, that make an output pixel.
struct Taps {
  int first = 0;
  std::vector<float> weights = {};  // their sum is 1
};

// The taps of `size` outputs along an axis of `available` pixels, of which [begin, begin + length)
// is wanted.
std::vector<Taps> triangle_taps(double begin, double length, int available, int size) {
  const double scale = length / size, reach = std::max(scale, 1.0);
  std::vector<Taps> taps(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - reach + 0.5));
    const int last = std::min(available, static_cast<int>(centre + reach + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (int k = first; k < last; ++k)
      sum += weights.emplace_back(std::max(0.0, 1 - std::abs(k + 0.5 - centre) / reach));
    Taps& own = taps[static_cast<size_t>(i)];
    own.first = first;
    for (const double w : weights) own.weights.push_back(static_cast<float>(w / sum));
  }
  return taps;
}

// A row of the image at the wanted columns: line [columns, 3].
void resample_row(const uint8_t* row, std::span<const Taps> columns, float* line) {
  for (const Taps& column : columns) {
    const uint8_t* pixel = row + 3 * column.first;
    float r = 0, g = 0, b = 0;
    for (const float w : column.weights) {
      r += w * static_cast<float>(pixel[0]);
      g += w * static_cast<float>(pixel[1]);
      b += w * static_cast<float>(pixel[2]);
      pixel += 3;
    }
    *line++ = r;
    *line++ = g;
    *line++ = b;
  }
}

// A box of that size around the middle.
CropBox in_the_middle(int height, int width, double crop_height, double crop_width) {
  return {(height - crop_height) / 2, (width - crop_width) / 2, crop_height, crop_width};
}

}  // namespace

CropBox centre_crop(int height, int width, double share) {
  const double side = share * std::min(height, width);
  return in_the_middle(height, width, side, side);
}

CropBox random_crop(int height, int width, DataRandom& random, double least) {
  constexpr int tries = 10;
  constexpr double narrow = 3.0 / 4, wide = 4.0 / 3;  // width : height
  const auto log_wide = static_cast<float>(std::log(wide));
  const double area = static_cast<double>(height) * width;
  for (int i = 0; i < tries; ++i) {
    const double part = area * random.uniform(static_cast<float>(least), 1);
    const double ratio = std::exp(random.uniform(-log_wide, log_wide));
    const double w = std::sqrt(part * ratio), h = std::sqrt(part / ratio);
    if (w > width || h > height) continue;
    return {random.uniform(0, 1) * (height - h), random.uniform(0, 1) * (width - w), h, w};
  }
  // The picture is too long for any of these shapes.
  const double w = std::min<double>(width, height * wide),
               h = std::min<double>(height, width / narrow);
  return in_the_middle(height, width, h, w);
}

// Works row by row, so that only one row is in memory beside the output.
void resample(const Image& image, const CropBox& box, int size, bool mirrored, float* out) {
  check(size > 0 && box.height > 0 && box.width > 0 && box.y >= 0 && box.x >= 0 &&
            box.y + box.height <= image.height + 1e-6 && box.x + box.width <= image.width + 1e-6,
        "resample",
        "the box must be inside of the image of {} x {} and the size positive, got {} x {} at {}, "
        "{} and {}",
        image.height, image.width, box.height, box.width, box.y, box.x, size);
  const auto rows = triangle_taps(box.y, box.height, image.height, size);
  auto columns = triangle_taps(box.x, box.width, image.width, size);
  if (mirrored) std::reverse(columns.begin(), columns.end());
  const size_t line_size = 3 * columns.size(), stride = 3 * static_cast<size_t>(image.width);
  std::vector<float> line(line_size);
  std::fill_n(out, rows.size() * line_size, 0.0f);
  const int end = rows.back().first + static_cast<int>(rows.back().weights.size());
  for (int y = rows.front().first; y < end; ++y) {
    resample_row(&image.pixels[static_cast<size_t>(y) * stride], columns, line.data());
    float* to = out;
    for (const Taps& row : rows) {
      const auto k = static_cast<size_t>(y - row.first);  // large where y is before the first
      if (k < row.weights.size())
        for (size_t i = 0; i < line_size; ++i) to[i] += row.weights[k] * line[i];
      to += line_size;
    }
  }
}

}  // namespace rw
