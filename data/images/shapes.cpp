// draw_shapes: ten shapes as inside/outside tests in their own coordinates.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/base/random.h"
#include "data/images/synthetic.h"

namespace rw {

namespace {

constexpr int shape_side = 32;
using Color = std::array<float, 3>;

bool in_plus(float u, float v) {
  return std::min(std::abs(u), std::abs(v)) < 0.27f && std::max(std::abs(u), std::abs(v)) < 0.9f;
}

// A five-pointed star: the outline's radius falls linearly from each tip to the notches.
bool in_star(float u, float v, float r) {
  constexpr float fifth = 2 * std::numbers::pi_v<float> / 5;
  const float turns = (std::atan2(u, -v) + 5 * fifth) / fifth;
  const float from_tip = 2 * std::abs(turns - std::round(turns));  // 0 at a tip, 1 at a notch
  return r < 0.95f - 0.6f * from_tip;
}

// Whether (u, v), with v pointing down, is inside the shape of radius 1.
bool inside(int label, float u, float v) {
  const float r = std::hypot(u, v), square = std::max(std::abs(u), std::abs(v));
  const auto band = [](float x) { return static_cast<int>(std::floor(x * 2.5f)) & 1; };
  switch (label) {
    case 0:
      return r < 0.85f;
    case 1:
      return r < 0.9f && r > 0.55f;
    case 2:
      return square < 0.75f;
    case 3:
      return square < 0.8f && square > 0.5f;
    case 4:
      return v < 0.6f && v > 2 * std::abs(u) - 0.9f;
    case 5:
      return in_plus(u, v);
    case 6:
      return in_plus((u + v) * std::numbers::sqrt2_v<float> / 2,
                     (u - v) * std::numbers::sqrt2_v<float> / 2);
    case 7:
      return in_star(u, v, r);
    case 8:
      return square < 0.8f && band(v);
    default:
      return square < 0.8f && band(u) != band(v);
  }
}

Color random_color(DataRandom& random, float low, float high) {
  return {random.uniform(low, high), random.uniform(low, high), random.uniform(low, high)};
}

struct Scene {
  Color ink, left, right;  // the background goes from left to right along an angle
  float x, y, size_u, size_v, angle, background_angle, noise;

  // Shapes are bright on dark: a network learns them in a few hundred steps.
  explicit Scene(DataRandom& random)
      : ink(random_color(random, 140, 255)),
        left(random_color(random, 0, 110)),
        right(random_color(random, 0, 110)) {
    x = random.uniform(12, 20);
    y = random.uniform(12, 20);
    size_u = random.uniform(9, 13);
    size_v = size_u * random.uniform(0.85f, 1.15f);
    angle = random.uniform(-0.3f, 0.3f);
    background_angle = random.uniform(0, 2 * std::numbers::pi_v<float>);
    noise = random.uniform(4, 16);
  }

  // The part of the pixel that the shape covers, from 2 x 2 samples.
  float coverage(int label, int px, int py) const {
    const float c = std::cos(angle), s = std::sin(angle);
    int hits = 0;
    for (int i = 0; i < 4; ++i) {
      const float dx = static_cast<float>(px) + 0.25f + 0.5f * static_cast<float>(i % 2) - x;
      const float dy = static_cast<float>(py) + 0.25f + 0.5f * static_cast<float>(i / 2) - y;
      hits += inside(label, (c * dx + s * dy) / size_u, (c * dy - s * dx) / size_v);
    }
    return static_cast<float>(hits) / 4;
  }

  // 0 to 1 along the background's angle.
  float blend(int px, int py) const {
    const float dx = static_cast<float>(px) - shape_side / 2.0f,
                dy = static_cast<float>(py) - shape_side / 2.0f;
    const float along = dx * std::cos(background_angle) + dy * std::sin(background_angle);
    return std::clamp(0.5f + along / shape_side, 0.0f, 1.0f);
  }
};

void draw_shape(int label, DataRandom& random, std::vector<uint8_t>& pixels) {
  const Scene scene(random);
  for (int y = 0; y < shape_side; ++y) {
    for (int x = 0; x < shape_side; ++x) {
      const float cover = scene.coverage(label, x, y), t = scene.blend(x, y);
      for (size_t c = 0; c < 3; ++c) {
        const float ground = std::lerp(scene.left[c], scene.right[c], t);
        const float value = std::lerp(ground, scene.ink[c], cover) + random.normal(0, scene.noise);
        pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)));
      }
    }
  }
}

}  // namespace

ImageDataset draw_shapes(int count, uint64_t seed) {
  ImageDataset data{shape_side,
                    shape_side,
                    3,
                    10,
                    {},
                    {},
                    {"disc", "ring", "square", "frame", "triangle", "plus", "cross", "star",
                     "stripes", "checker"}};
  for (int i = 0; i < count; ++i) {
    DataRandom random(seed, 1, static_cast<uint64_t>(i));
    draw_shape(i % 10, random, data.pixels);
    data.labels.push_back(i % 10);
  }
  return data;
}

}  // namespace rw
