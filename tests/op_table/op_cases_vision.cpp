// Convolutions besides conv2d, resampling and padding, pooling to sizes.
#include "ops/network/conv.h"
#include "ops/network/vision.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

void add_padded(Table& t) {
  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const Conv2dOptions& o) {
    t.row(name, {x(image), x(weight)}, [o](const Tensors& in) { return conv2d(in[0], in[1], o); });
  };
  conv("conv2d padded on some sides", {2, 5, 6, 3}, {4, 3, 3, 3},
       {.padding = {0, 1}, .padding_end = Size2d(2, 0)});
  conv("conv2d same, even kernel", {2, 5, 7, 3}, {4, 4, 2, 3}, same_padding({4, 2}));
  conv("conv2d same, dilated", {1, 7, 6, 8}, {8, 2, 3, 8}, same_padding({2, 3}, {.dilation = 2}));
  conv("conv2d reflected", {2, 4, 5, 3}, {2, 3, 3, 3},
       {.stride = 2, .padding = 1, .padding_mode = PaddingMode::reflect});
  conv("conv2d replicated", {1, 4, 5, 8}, {3, 3, 3, 8},
       {.padding = {2, 1}, .padding_end = Size2d(1, 3), .padding_mode = PaddingMode::replicate});
  conv("conv2d circular", {2, 3, 4, 2}, {3, 3, 3, 2},
       {.padding = 1, .padding_mode = PaddingMode::circular});
  for (const int64_t c : {3, 4, 6, 16, 40})
    for (const int stride : {1, 2})
      conv(fmt::format("conv2d depthwise {} channels, stride {}", c, stride).c_str(), {2, 6, 7, c},
           {c, 3, 3, 1}, {.stride = stride, .padding = 1, .groups = static_cast<int>(c)});
  conv("conv2d depthwise, uneven", {1, 9, 8, 8}, {8, 2, 5, 1},
       {{2, 3}, {1, 3}, {3, 2}, 8, true, Size2d(2, 1)});
  conv("conv2d depthwise, 5 x 5", {2, 9, 11, 12}, {12, 5, 5, 1}, {.padding = 2, .groups = 12});
  conv("conv2d depthwise, 6 x 3 at stride 2", {1, 12, 10, 8}, {8, 6, 3, 1},
       {.stride = 2, .padding = {3, 1}, .groups = 8});
  conv("conv2d depthwise, dilated", {1, 9, 9, 4}, {4, 3, 3, 1},
       {.padding = 2, .dilation = 2, .groups = 4});
  conv("conv2d depthwise, strides beyond the kernel", {1, 9, 8, 4}, {4, 2, 1, 1},
       {.stride = 3, .groups = 4});
  conv("conv2d depthwise, twice the channels", {2, 5, 5, 8}, {16, 3, 3, 1},
       {.padding = 1, .groups = 8});
  conv("conv2d depthwise of many lines", {3, 40, 9, 8}, {8, 3, 3, 1}, {.padding = 1, .groups = 8});
}

void add_lines(Table& t) {
  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const Conv1dOptions& o) {
    t.row(name, {x(image), x(weight), learned({weight[0]}, -1, 1)},
          [o](const Tensors& in) { return conv1d(in[0], in[1], in[2], o); });
  };
  conv("conv1d", {2, 9, 3}, {4, 3, 3}, {});
  conv("conv1d with everything", {2, 13, 6}, {4, 3, 3},
       {.stride = 2, .padding = 3, .dilation = 2, .groups = 2, .padding_end = 1});
  conv("conv1d circular", {1, 7, 8}, {8, 5, 1},
       {.padding = 2, .groups = 8, .padding_mode = PaddingMode::circular});
  t.row("conv_transpose1d", {x({2, 5, 4}), x({4, 3, 3}), learned({6}, -1, 1)},
        [](const Tensors& in) {
          return conv_transpose1d(in[0], in[1], in[2],
                                  {.stride = 3, .padding = 1, .output_padding = 2, .groups = 2});
        });
}

void add_transposed(Table& t) {
  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const ConvTranspose2dOptions& o) {
    t.row(name, {x(image), x(weight), learned({weight[3] * o.groups}, -1, 1)},
          [o](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2], o); });
  };
  conv("conv_transpose2d", {2, 3, 4, 3}, {3, 3, 3, 4}, {});
  conv("conv_transpose2d stride 2", {2, 3, 4, 8}, {8, 2, 2, 5}, {.stride = 2});
  conv("conv_transpose2d with everything", {1, 4, 3, 6}, {6, 3, 5, 2},
       {{2, 3}, {1, 2}, {1, 2}, {2, 1}, 3});
  conv("conv_transpose2d, output padding beyond the stride", {1, 3, 3, 4}, {4, 2, 3, 3},
       {.stride = 1, .output_padding = {2, 1}, .dilation = 3});
  conv("conv_transpose2d depthwise", {2, 3, 4, 8}, {8, 4, 4, 1},
       {.stride = 2, .padding = 1, .groups = 8});
  conv("conv_transpose2d 1x1", {2, 3, 3, 4}, {4, 1, 1, 8}, {});
  t.row("conv_transpose2d of no images", {x({0, 3, 3, 4}), x({4, 2, 2, 3})},
        [](const Tensors& in) { return conv_transpose2d(in[0], in[1]); });
}

void add_volumes(Table& t) {
  const auto conv = [&](const char* name, const Shape& image, const Shape& weight,
                        const Conv3dOptions& o) {
    t.row(name, {x(image), x(weight), learned({weight[0]}, -1, 1)},
          [o](const Tensors& in) { return conv3d(in[0], in[1], in[2], o); });
  };
  conv("conv3d", {2, 4, 3, 4, 3}, {4, 2, 2, 3, 3}, {});
  conv("conv3d padded", {1, 3, 4, 3, 8}, {8, 3, 3, 3, 8}, {.padding = 1});
  conv("conv3d with everything", {2, 5, 4, 5, 4}, {6, 3, 2, 3, 2},
       {{2, 1, 2}, {2, 1, 0}, {1, 2, 1}, 2, true, Size3d(3, 1, 1)});
  conv("conv3d stride beyond the kernel", {1, 7, 3, 3, 2}, {3, 2, 1, 1, 2}, {.stride = {3, 1, 1}});
  conv("conv3d of planes", {2, 3, 4, 4, 3}, {4, 1, 3, 3, 3}, {.padding = {0, 1, 1}});
  conv("conv3d circular", {1, 3, 2, 3, 2}, {2, 3, 3, 3, 2},
       {.padding = 1, .padding_mode = PaddingMode::circular});
  t.row("conv3d of no volumes", {x({0, 3, 3, 3, 2}), x({3, 2, 2, 2, 2})},
        [](const Tensors& in) { return conv3d(in[0], in[1]); });
}

void add_sizes(Table& t) {
  const auto resized = [&](const std::string& name, const Shape& shape,
                           const InterpolateOptions& o) -> OpCase& {
    return t.row("interpolate " + name, {x(shape)},
                 [o](const Tensors& in) { return interpolate(in[0], o); });
  };
  using enum InterpolationMode;
  for (const int64_t c : {3, 8})
    for (const auto& [name, mode, align] : {std::tuple{"nearest", nearest, false},
                                            {"nearest-exact", nearest_exact, false},
                                            {"linear", linear, false},
                                            {"linear aligned", linear, true},
                                            {"cubic", cubic, false},
                                            {"cubic aligned", cubic, true}}) {
      resized(fmt::format("{} to more, {} channels", name, c), {2, 3, 4, c},
              {.size = {7, 9}, .mode = mode, .align_corners = align});
      resized(fmt::format("{} to less, {} channels", name, c), {1, 8, 7, c},
              {.size = {3, 5}, .mode = mode, .align_corners = align});
    }
  for (const auto& [name, mode] :
       {std::pair{"nearest", nearest}, {"linear", linear}, {"cubic", cubic}}) {
    resized(fmt::format("{} by factors", name), {1, 5, 4, 3},
            {.scale_factor = {2.3, 0.6}, .mode = mode});
    resized(fmt::format("{} from and to one", name), {1, 1, 5, 3},
            {.size = {4, 1}, .mode = mode, .align_corners = mode != nearest});
  }
  resized("area", {2, 5, 7, 3}, {.size = {3, 4}, .mode = area});
  resized("of sequences", {2, 5, 3}, {.scale_factor = {2}, .mode = linear});
  resized("area of sequences", {2, 7, 8}, {.size = {3}, .mode = area});
  resized("of volumes", {2, 2, 3, 2, 3}, {.size = {3, 4, 5}, .mode = linear});
  resized("of volumes to the nearest", {1, 2, 3, 2, 8}, {.scale_factor = {2}});
  OpCase& spread = t.row("interpolate of one element to many",
                         {x({1, 1, 2, 1}), constant({270, 260, 1})}, [](const Tensors& in) {
                           return interpolate(in[0], {.size = {270, 260}, .mode = linear}) * in[1];
                         });
  spread.f32_tolerance = 3e-5;  // sums of 70000 values of both signs
  resized("of nothing", {0, 3, 4, 2}, {.size = {5}});

  t.row("pixel_shuffle", {x({2, 3, 2, 8})},
        [](const Tensors& in) { return pixel_shuffle(in[0], 2); });
  t.row("pixel_unshuffle", {x({2, 6, 3, 2})},
        [](const Tensors& in) { return pixel_unshuffle(in[0], 3); });
}

void add_borders(Table& t) {
  for (const int64_t c : {3, 8})
    for (const auto& [name, mode] : {std::pair{"reflect", PaddingMode::reflect},
                                     {"replicate", PaddingMode::replicate},
                                     {"circular", PaddingMode::circular}})
      t.row(fmt::format("pad_mode {}, {} channels", name, c), {x({2, 4, 3, c})},
            [mode = mode](const Tensors& in) {
              return pad(in[0], {0, 3, 1, 0}, {0, 2, 2, 0}, mode);
            });
  t.row("pad_mode replicate by more than there is", {x({2, 1, 3})}, [](const Tensors& in) {
    return pad(in[0], {0, 4, 0}, {0, 3, 7}, PaddingMode::replicate);
  });
}

void add_pooling(Table& t) {
  for (const auto& [shape, size] : {std::pair{Shape{2, 7, 9, 3}, Size2d(3, 4)},
                                    {Shape{1, 8, 5, 8}, Size2d(4, 7)},
                                    {Shape{2, 3, 4, 5}, Size2d(1)},
                                    {Shape{1, 5, 6, 16}, Size2d(5, 1)}}) {
    const std::string name = fmt::format("{} to {} x {}", shape.str(), size.h, size.w);
    t.row("adaptive_max_pool2d " + name, {x(shape)},
          [size = size](const Tensors& in) { return adaptive_max_pool2d(in[0], size); });
    t.row("adaptive_avg_pool2d " + name, {x(shape)},
          [size = size](const Tensors& in) { return adaptive_avg_pool2d(in[0], size); });
  }
  t.row("adaptive_max_pool2d of large windows", {x({1, 96, 91, 1})},
        [](const Tensors& in) { return adaptive_max_pool2d(in[0], 1); });
  t.row("adaptive_avg_pool2d of large windows", {x({1, 97, 180, 1}, 0, 1)}, [](const Tensors& in) {
    return adaptive_avg_pool2d(in[0], {1, 2});
  });
  t.row("max_pool2d of large windows", {x({1, 93, 95, 1})}, [](const Tensors& in) {
    return max_pool2d(in[0], {.kernel = {91, 92}, .stride = {2, 3}, .padding = {1, 0}});
  });
  t.row("max_pool1d", {x({2, 9, 3})}, [](const Tensors& in) {
    return max_pool1d(in[0], {.kernel = 3, .stride = 2, .padding = 1});
  });
  t.row("avg_pool1d", {x({2, 9, 8})}, [](const Tensors& in) {
    return avg_pool1d(in[0], {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false});
  });
  t.row("adaptive_max_pool1d", {x({2, 9, 3})},
        [](const Tensors& in) { return adaptive_max_pool1d(in[0], 4); });
  t.row("adaptive_avg_pool1d", {x({2, 9, 8})},
        [](const Tensors& in) { return adaptive_avg_pool1d(in[0], 4); });
}

}  // namespace

void add_vision(Table& t) {
  add_padded(t);
  add_lines(t);
  add_transposed(t);
  add_volumes(t);
  add_sizes(t);
  add_borders(t);
  add_pooling(t);
}

}  // namespace rw::test
