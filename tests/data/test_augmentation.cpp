// Augmentation by loaders, compared with the plain arithmetic of the definition; every crop and
// every order is as likely as every other.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "data/base/batch_order.h"
#include "data/base/random.h"
#include "data/images/loader.h"
#include "data/images/resample.h"

using namespace rw;

namespace {

using Values = std::vector<float>;

// Returns images whose values are all different.
ImageDataset images(int count, int height, int width, int channels) {
  ImageDataset data{height, width, channels, 10, {}, {}, {}};
  for (int i = 0; i < count; ++i) data.labels.push_back(i);
  for (int v = 0; v < count * height * width * channels; ++v)
    data.pixels.push_back(static_cast<uint8_t>(1 + v));
  return data;
}

// Returns the image padded with black, cut at (top, left) of the padded one, mirrored and
// normalised.
Values crop(const ImageDataset& data, int padding, int top, int left, bool mirrored,
            const Values& mean, const Values& std) {
  Values out;
  for (int y = 0; y < data.height; ++y)
    for (int x = 0; x < data.width; ++x)
      for (int c = 0; c < data.channels; ++c) {
        const int row = top + y - padding;
        const int column = left + (mirrored ? data.width - 1 - x : x) - padding;
        const bool is_black = row < 0 || row >= data.height || column < 0 || column >= data.width;
        const int at = (row * data.width + column) * data.channels + c;
        const double pixel = is_black ? 0 : data.pixels[static_cast<size_t>(at)] / 255.0;
        const auto channel = static_cast<size_t>(c);
        out.push_back(static_cast<float>((pixel - mean[channel]) / std[channel]));
      }
  return out;
}

bool are_near(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::abs(x - y) < 1e-5f; });
}

// Checks that all `counts` agree with equal chances within five deviations.
void check_even(const std::vector<int>& counts, int draws) {
  const double expected = double(draws) / static_cast<double>(counts.size());
  for (const int n : counts) {
    CHECK(n > expected - 5 * std::sqrt(expected));
    CHECK(n < expected + 5 * std::sqrt(expected));
  }
}

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("augmentation: crops of the padded image, all of them, each as often") {
  const ImageDataset data = images(1, 4, 5, 2);
  const Values mean = {0.25f, 0.5f}, std = {0.5f, 0.125f};
  for (const int padding : {0, 1, 2})
    for (const bool flip : {false, true}) {
      CAPTURE(padding);
      CAPTURE(flip);
      std::vector<Values> all;
      for (int top = 0; top <= 2 * padding; ++top)
        for (int left = 0; left <= 2 * padding; ++left)
          for (int mirrored = 0; mirrored <= (flip ? 1 : 0); ++mirrored)
            all.push_back(crop(data, padding, top, left, mirrored == 1, mean, std));
      Loader loader(
          data, {.batch_size = 1, .crop_padding = padding, .flip = flip, .mean = mean, .std = std});
      std::vector<int> counts(all.size());
      const int draws = 60 * static_cast<int>(all.size());
      for (int epoch = 0; epoch < draws; ++epoch) {
        const Values pixels = loader.batch(epoch, 0).pixels;
        const auto found = std::find_if(all.begin(), all.end(),
                                        [&](const Values& one) { return are_near(one, pixels); });
        REQUIRE(found != all.end());
        ++counts[static_cast<size_t>(found - all.begin())];
      }
      check_even(counts, draws);
    }
}

TEST_CASE("augmentation: the images of a batch have crops of their own") {
  const ImageDataset data = images(2, 4, 4, 1);
  Loader loader(data, {.batch_size = 2, .crop_padding = 1});
  std::map<std::pair<int, int>, int> pairs;
  const auto number = [&](const Values& pixels, size_t image) {
    const ImageDataset one{4,
                           4,
                           1,
                           10,
                           {data.pixels.begin() + static_cast<int>(16 * image),
                            data.pixels.begin() + static_cast<int>(16 * image + 16)},
                           {0},
                           {}};
    const Values own(pixels.begin() + static_cast<int>(16 * image),
                     pixels.begin() + static_cast<int>(16 * image + 16));
    for (int at = 0; at < 9; ++at)
      if (are_near(own, crop(one, 1, at / 3, at % 3, false, {0}, {1}))) return at;
    return -1;
  };
  for (int epoch = 0; epoch < 81 * 20; ++epoch) {
    const Values pixels = loader.batch(epoch, 0).pixels;
    const std::pair pair{number(pixels, 0), number(pixels, 1)};
    REQUIRE(pair.first >= 0);
    REQUIRE(pair.second >= 0);
    ++pairs[pair];
  }
  CHECK(pairs.size() == 81);
}

TEST_CASE("augmentation: every order of a few images, each as often") {
  BatchOrder order({.samples = 4, .batch_size = 4, .shuffle = true, .seed = 5});
  std::map<std::vector<uint32_t>, int> counts;
  constexpr int draws = 24 * 100;
  for (int epoch = 0; epoch < draws; ++epoch) {
    const auto batch = order.batch(epoch, 0);
    ++counts[{batch.begin(), batch.end()}];
  }
  CHECK(counts.size() == 24);
  std::vector<int> often;
  for (const auto& [permutation, n] : counts) often.push_back(n);
  check_even(often, draws);
}

TEST_CASE("augmentation: crops of photographs reach every edge") {
  for (const auto& [height, width] : {std::pair{60, 80}, {80, 60}, {33, 34}}) {
    DataRandom random(7);
    double top = 1e9, left = 1e9, bottom = 1e9, right = 1e9;  // the least room that was left
    for (int i = 0; i < 4000; ++i) {
      const CropBox box = random_crop(height, width, random);
      if (box.height > height - 2 || box.width > width - 2) continue;  // there must be a choice
      top = std::min(top, box.y), bottom = std::min(bottom, height - box.y - box.height);
      left = std::min(left, box.x), right = std::min(right, width - box.x - box.width);
    }
    for (const double room : {top, bottom, left, right}) {
      CHECK(room >= -1e-3);
      CHECK(room < 0.1);
    }
  }
}

TEST_SUITE_END();

}  // namespace
