// Convolutions in Winograd's form: transformations, and products of what they make.
#include "backends/cpu/loops/halves.h"
#include "backends/cpu/loops/product.h"
#include "backends/cpu/winograd_call.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

constexpr int64_t matrices = 16;      // 4 x 4
constexpr int64_t panel = 2 * lanes;  // outputs whose weights lie together
constexpr int64_t weights_at_once = Winograd::weights_at_once;
constexpr float winograd_zeros[Winograd::depth] = {};  // pixels outside

// ---- transformations in one dimension ----------------------------------------------------------

// A line of x: four pixels.
REWIND_INLINE void transform_pixels(Vec (&d)[4]) {
  const Vec first = d[0] - d[2], sum = d[1] + d[2], difference = d[2] - d[1], last = d[1] - d[3];
  d[0] = first, d[1] = sum, d[2] = difference, d[3] = last;
}
// A line of weights, three of them, becomes four.
REWIND_INLINE void transform_weights(Vec (&g)[4]) {
  const Vec ends = (g[0] + g[2]) * 0.5f, middle = g[1] * 0.5f;
  g[3] = g[2], g[1] = ends + middle, g[2] = ends - middle;
}
// Four products become two pixels of y.
REWIND_INLINE void transform_back(Vec (&m)[4]) {
  const Vec first = m[0] + m[1] + m[2], second = m[1] - m[2] - m[3];
  m[0] = first, m[1] = second;
}
// Two pixels of dy become four: the transpose of transform_back().
REWIND_INLINE void transform_gradient(Vec (&e)[4]) {
  const Vec sum = e[0] + e[1], difference = e[0] - e[1];
  e[3] = -e[1], e[1] = sum, e[2] = difference;
}
// Four products become the gradient of three weights: the transpose of transform_weights().
REWIND_INLINE void transform_weights_back(Vec (&m)[4]) {
  const Vec sum = (m[1] + m[2]) * 0.5f, difference = (m[1] - m[2]) * 0.5f;
  m[0] = m[0] + sum, m[1] = difference, m[2] = sum + m[3];
}

// Applies a transformation to all `from` columns of a square, of which `from` rows are filled, and
// then to the `to` rows that it has made.
template <int from, int to, void (*transform)(Vec (&)[4])>
REWIND_INLINE void in_both(Vec (&square)[4][4]) {
#pragma GCC unroll 4
  for (int j = 0; j < from; ++j) {
    Vec line[4];
#pragma GCC unroll 4
    for (int i = 0; i < from; ++i) line[i] = square[i][j];
    transform(line);
#pragma GCC unroll 4
    for (int i = 0; i < to; ++i) square[i][j] = line[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < to; ++i) transform(square[i]);
}

// ---- tiles -------------------------------------------------------------------------------------

// Where a tile of y begins.
struct TilePlace {
  int64_t image, row, col;
  TilePlace(const Winograd& p, int64_t tile) {
    const int64_t across = divide_up(p.out_w, 2), down = divide_up(p.out_h, 2);
    image = tile / across / down;
    row = tile / across % down * 2;
    col = tile % across * 2;
  }
};

// Finds size x size pixels from (row, col) on, at one channel.
template <int size, class T>
void find_pixels(const T* image, int64_t height, int64_t width, int64_t channels, int64_t row,
                 int64_t col, const T* (&to)[size][size]) {
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < size; ++j) {
      const int64_t y = row + i, x = col + j;
      const bool is_inside = y >= 0 && y < height && x >= 0 && x < width;
      to[i][j] = is_inside ? image + (y * width + x) * channels
                           : reinterpret_cast<const T*>(winograd_zeros);
    }
}

// Transforms `count` channels of tiles [first, first + tiles) from squares of pixels of this size:
// element c of tile t of matrix k becomes to[(k * per_step + t) * row + c].
template <int size, void (*transform)(Vec (&)[4]), class T, class Find>
void transform_tiles(const Winograd& p, int64_t first, int64_t tiles, int64_t count, int64_t row,
                     float* to, const Find& find) {
  const int64_t matrix = p.per_step * row;
  for (int64_t t = 0; t < tiles; ++t, to += row) {
    const T* pixels[size][size];
    find(TilePlace(p, first + t), pixels);
    for (int64_t c = 0; c < count; c += lanes) {
      Vec square[4][4];
#pragma GCC unroll 4
      for (int i = 0; i < size; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < size; ++j) square[i][j] = load(pixels[i][j] + c);
      in_both<size, 4, transform>(square);
#pragma GCC unroll 16
      for (int k = 0; k < matrices; ++k) store(to + k * matrix + c, square[k / 4][k % 4]);
    }
  }
}

template <class T>
void transform_x(const Winograd& p, const T* x, int64_t first, int64_t tiles, int64_t channel,
                 int64_t count, int64_t row, float* to) {
  transform_tiles<4, transform_pixels, T>(
      p, first, tiles, count, row, to, [&](const TilePlace& at, const T*(&pixels)[4][4]) {
        find_pixels(x + at.image * p.in_h * p.in_w * p.in_c + channel, p.in_h, p.in_w, p.in_c,
                    at.row - p.pad_h, at.col - p.pad_w, pixels);
      });
}
template <class T>
void transform_dy(const Winograd& p, const T* dy, int64_t first, int64_t tiles, int64_t channel,
                  int64_t count, int64_t row, float* to) {
  transform_tiles<2, transform_gradient, T>(
      p, first, tiles, count, row, to, [&](const TilePlace& at, const T*(&pixels)[2][2]) {
        find_pixels(dy + at.image * p.out_h * p.out_w * p.out_c + channel, p.out_h, p.out_w,
                    p.out_c, at.row, at.col, pixels);
      });
}

// Calls f with the first element, of its type.
template <class F>
void with_elements(const WinogradImages& of, const F& f) {
  if (of.dtype == DType::f16) return f(reinterpret_cast<const Half*>(of.data));
  if (of.dtype == DType::bf16) return f(reinterpret_cast<const Brain*>(of.data));
  f(reinterpret_cast<const float*>(of.data));
}

// Makes the pixels of a tile, of `count` channels from `channel` on, from products that lie like
// those of transform_tiles().
void make_pixels(const Winograd& p, int64_t tile, int64_t channel, int64_t count,
                 const float* products, int64_t matrix, std::byte* y, DType dtype) {
  const TilePlace at(p, tile);
  float made[2][2][Winograd::width];
  for (int64_t c = 0; c < count; c += lanes) {
    Vec square[4][4];
#pragma GCC unroll 16
    for (int k = 0; k < matrices; ++k) square[k / 4][k % 4] = load(products + k * matrix + c);
    in_both<4, 2, transform_back>(square);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) store(made[i][j] + c, square[i][j]);
  }
  for (int64_t i = 0; i < least(2, p.out_h - at.row); ++i)
    for (int64_t j = 0; j < least(2, p.out_w - at.col); ++j) {
      const int64_t pixel = (at.image * p.out_h + at.row + i) * p.out_w + at.col + j;
      from_floats(made[i][j], count, dtype, y + (pixel * p.out_c + channel) * bytes_of(dtype));
    }
}

// ---- pieces ------------------------------------------------------------------------------------

void weights_of_piece(const Winograd& p, const float* w, int64_t piece, float* to) {
  const int64_t matrix = p.in_c * p.out_c, end = least(p.out_c, (piece + 1) * weights_at_once);
  float lines[9][weights_at_once * panel];
  for (int64_t out = piece * weights_at_once; out < end; out += panel) {
    const int64_t wide = least(panel, end - out);
    float* const panel_of = to + out * p.in_c;
    for (int64_t in = 0; in < p.in_c; in += weights_at_once) {
      const int64_t inputs = least(weights_at_once, p.in_c - in);
      for (int64_t k = 0; k < 9 && !p.is_turned; ++k)
        transpose(wide, inputs, w + (out * 9 + k) * p.in_c + in, 9 * p.in_c, 1, lines[k], wide);
      for (int64_t i = 0; i < inputs; ++i)
        for (int64_t c = 0; c < wide; c += lanes) {
          Vec square[4][4];
#pragma GCC unroll 9
          for (int k = 0; k < 9; ++k)
            square[k / 3][k % 3] = load(p.is_turned ? w + ((in + i) * 9 + 8 - k) * p.out_c + out + c
                                                    : lines[k] + i * wide + c);
          in_both<3, 4, transform_weights>(square);
#pragma GCC unroll 16
          for (int k = 0; k < matrices; ++k)
            store(panel_of + k * matrix + (in + i) * wide + c, square[k / 4][k % 4]);
        }
    }
  }
}

void images_of_piece(const Winograd& p, const WinogradImages& x, const float* weights,
                     int64_t piece, float* scratch, std::byte* y, DType y_dtype) {
  const int64_t steps = divide_up(p.tiles, p.per_step), first = piece % steps * p.per_step;
  const int64_t tiles = least(p.per_step, p.tiles - first), channel = piece / steps * p.width;
  const int64_t count = least(p.width, p.out_c - channel);
  float* const products = scratch;
  float* const transformed = products + matrices * p.per_step * p.width;
  for (int64_t in = 0; in < p.in_c; in += p.depth) {
    const int64_t inputs = least(p.depth, p.in_c - in), row = inputs + p.gap;
    with_elements(x, [&](const auto* elements) {
      transform_x(p, elements, first, tiles, in, inputs, row, transformed);
    });
    for (int64_t k = 0; k < matrices; ++k)
      for (int64_t out = 0; out < count; out += panel) {
        const int64_t wide = least(panel, count - out);
        const Factor a{transformed + k * p.per_step * row, row, 1};
        const float* const b = weights + (k * p.out_c + channel + out) * p.in_c + in * wide;
        float* const c = products + k * p.per_step * p.width + out;
        (in == 0 ? product<false> : product<true>)(tiles, wide, inputs, a, b, wide, c, p.width);
      }
  }
  for (int64_t t = 0; t < tiles; ++t)
    make_pixels(p, first + t, channel, count, products + t * p.width, p.per_step * p.width, y,
                y_dtype);
}

void gradient_of_piece(const Winograd& p, const WinogradImages& x, const WinogradImages& dy,
                       int64_t piece, float* scratch, float* dw) {
  const int64_t across = divide_up(p.in_c, p.width), down = divide_up(p.out_c, p.width);
  const int64_t in = piece % across * p.width, out = piece / across % down * p.width;
  const int64_t part = piece / across / down, end = least(p.tiles, (part + 1) * p.per_part);
  const int64_t inputs = least(p.width, p.in_c - in), outputs = least(p.width, p.out_c - out);
  constexpr int64_t row = Winograd::width + Winograd::gap;
  const int64_t matrix = p.per_step * row;
  float* const sums = scratch;
  float* const of_x = sums + matrices * p.width * p.width;
  float* const of_dy = of_x + matrices * matrix;
  for (int64_t first = part * p.per_part; first < end; first += p.per_step) {
    const int64_t tiles = least(p.per_step, end - first);
    with_elements(x, [&](const auto* elements) {
      transform_x(p, elements, first, tiles, in, inputs, row, of_x);
    });
    with_elements(dy, [&](const auto* elements) {
      transform_dy(p, elements, first, tiles, out, outputs, row, of_dy);
    });
    for (int64_t k = 0; k < matrices; ++k)
      (first == part * p.per_part
           ? product<false>
           : product<true>)(outputs, inputs, tiles, Factor{of_dy + k * matrix, 1, row},
                            of_x + k * matrix, row, sums + k * p.width * p.width, p.width);
  }
  float* const to = dw + (part * p.out_c + out) * 9 * p.in_c + in;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t c = 0; c < inputs; c += lanes) {
      Vec square[4][4];
#pragma GCC unroll 16
      for (int k = 0; k < matrices; ++k)
        square[k / 4][k % 4] = load(sums + (k * p.width + o) * p.width + c);
      in_both<4, 3, transform_weights_back>(square);
#pragma GCC unroll 9
      for (int k = 0; k < 9; ++k) store(to + (o * 9 + k) * p.in_c + c, square[k / 3][k % 3]);
    }
}

}  // namespace

extern const WinogradLoops winograd_loops;
const WinogradLoops winograd_loops = {weights_of_piece, images_of_piece, gradient_of_piece};

}  // namespace rw::cpu::REWIND_LEVEL
