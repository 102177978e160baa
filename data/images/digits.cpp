// draw_digits: a stroke font in the unit square (y down), warped and drawn with a round pen.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/base/random.h"
#include "data/images/synthetic.h"

namespace rw {

namespace {

constexpr int digit_side = 28;

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;

// Part of an ellipse; angles in degrees, clockwise from the right.
Stroke arc(Point center, float rx, float ry, float from, float to) {
  constexpr int pieces = 16;
  Stroke stroke;
  for (int i = 0; i <= pieces; ++i) {
    const float angle =
        (from + (to - from) * static_cast<float>(i) / pieces) * std::numbers::pi_v<float> / 180;
    stroke.push_back({center.x + rx * std::cos(angle), center.y + ry * std::sin(angle)});
  }
  return stroke;
}

Stroke then(Stroke stroke, std::initializer_list<Point> points) {
  stroke.insert(stroke.end(), points);
  return stroke;
}

const std::array<std::vector<Stroke>, 10>& font() {
  static const std::array<std::vector<Stroke>, 10> glyphs = {{
      {arc({0.5f, 0.5f}, 0.28f, 0.4f, 0, 360)},
      {{{0.35f, 0.27f}, {0.55f, 0.1f}, {0.55f, 0.9f}}},
      {then(arc({0.5f, 0.33f}, 0.25f, 0.23f, 180, 395), {{0.24f, 0.9f}, {0.79f, 0.9f}})},
      {arc({0.47f, 0.3f}, 0.25f, 0.2f, 200, 450), arc({0.47f, 0.7f}, 0.29f, 0.2f, 270, 520)},
      {{{0.65f, 0.9f}, {0.65f, 0.1f}, {0.22f, 0.65f}, {0.82f, 0.65f}}},
      {{{0.75f, 0.1f}, {0.33f, 0.1f}, {0.3f, 0.46f}}, arc({0.48f, 0.65f}, 0.27f, 0.25f, 230, 510)},
      {{{0.66f, 0.1f}, {0.42f, 0.33f}, {0.28f, 0.64f}}, arc({0.5f, 0.67f}, 0.23f, 0.23f, 0, 360)},
      {{{0.22f, 0.1f}, {0.78f, 0.1f}, {0.42f, 0.9f}}},
      {arc({0.5f, 0.3f}, 0.21f, 0.2f, 0, 360), arc({0.5f, 0.7f}, 0.26f, 0.2f, 0, 360)},
      {arc({0.48f, 0.34f}, 0.23f, 0.23f, 0, 360), {{0.71f, 0.34f}, {0.66f, 0.65f}, {0.5f, 0.9f}}},
  }};
  return glyphs;
}

// Random slant, size, place and wobble: a map from the unit square to pixels.
class Warp {
 public:
  explicit Warp(DataRandom& random) : random_(random) {
    const float angle = random.uniform(-0.25f, 0.25f), shear = random.uniform(-0.25f, 0.15f);
    const float width = random.uniform(17, 22), height = random.uniform(18, 23);
    xx_ = width * std::cos(angle);
    xy_ = height * (shear * std::cos(angle) - std::sin(angle));
    yx_ = width * std::sin(angle);
    yy_ = height * (shear * std::sin(angle) + std::cos(angle));
    x_ = random.uniform(-2, 2) + digit_side / 2.0f;
    y_ = random.uniform(-2, 2) + digit_side / 2.0f;
  }

  Point operator()(Point p) {
    const float u = p.x - 0.5f + random_.normal(0, 0.012f),
                v = p.y - 0.5f + random_.normal(0, 0.012f);
    return {x_ + xx_ * u + xy_ * v, y_ + yx_ * u + yy_ * v};
  }

 private:
  DataRandom& random_;
  float xx_, xy_, yx_, yy_, x_, y_;
};

float distance_to_segment(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y, length2 = std::max(dx * dx + dy * dy, 1e-6f);
  const float t = std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0f, 1.0f);
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

float distance_to(const std::vector<Stroke>& strokes, Point p) {
  float nearest = digit_side;
  for (const Stroke& stroke : strokes)
    for (size_t i = 1; i < stroke.size(); ++i)
      nearest = std::min(nearest, distance_to_segment(p, stroke[i - 1], stroke[i]));
  return nearest;
}

void draw_digit(int digit, DataRandom& random, std::vector<uint8_t>& pixels) {
  Warp warp(random);
  std::vector<Stroke> strokes = font()[static_cast<size_t>(digit)];
  for (Stroke& stroke : strokes)
    for (Point& point : stroke) point = warp(point);
  const float pen = random.uniform(0.9f, 1.8f), ink = random.uniform(190, 255);
  const float noise = random.uniform(0, 24);
  for (int y = 0; y < digit_side; ++y) {
    for (int x = 0; x < digit_side; ++x) {
      const Point p{static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
      const float cover = std::clamp(pen + 0.5f - distance_to(strokes, p), 0.0f, 1.0f);
      const float value = ink * cover + random.normal(0, noise);
      pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)));
    }
  }
}

}  // namespace

ImageDataset draw_digits(int count, uint64_t seed) {
  ImageDataset data{
      digit_side, digit_side, 1, 10, {}, {}, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}};
  for (int i = 0; i < count; ++i) {
    DataRandom random(seed, 2, static_cast<uint64_t>(i));
    draw_digit(i % 10, random, data.pixels);
    data.labels.push_back(i % 10);
  }
  return data;
}

}  // namespace rw
