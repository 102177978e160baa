// Convolutions, resampling and padding, compared with PyTorch; their layers, files and errors.
#include <map>

#include "io/models/model.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/vision.h"
#include "ops/network/conv.h"
#include "ops/network/vision.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

const std::map<std::string, Values> vision_goldens = {
#include "tests/goldens/vision.inc"
};

void check_vision_golden(const std::string& name, const Tensor& t) {
  const double error = largest_error(t.to_vector(), vision_goldens.at(name));
  CHECK_MESSAGE(error <= 2e-6, name << " has an element that differs by " << error);
}

Tensor value(const Shape& shape, int seed) {
  return tensor(some_values(static_cast<int>(shape.numel()), seed), shape);
}

// report() of make_vision_goldens.py.
using Function = std::function<Tensor(const Tensors&)>;
void check_function(const std::string& name, const std::vector<Shape>& shapes, const Function& f) {
  Tensors inputs;
  for (size_t k = 0; k < shapes.size(); ++k)
    inputs.push_back(value(shapes[k], 1 + static_cast<int>(k)).set_requires_grad());
  const Tensor y = f(inputs);
  sum(y * value(y.shape(), 90)).backward();
  check_vision_golden(name, y);
  for (size_t k = 0; k < inputs.size(); ++k)
    check_vision_golden(fmt::format("{} gradient {}", name, k), inputs[k].grad());
}

}  // namespace

TEST_CASE("vision: PyTorch's convolutions and gradients") {
  on_each_device([] {
    check_function("conv1d same", {{2, 6, 3}, {2, 4, 3}, {2}}, [](const Tensors& in) {
      return conv1d(in[0], in[1], in[2], {.padding = 1, .padding_end = 2});
    });
    for (const auto& [name, mode] : {std::pair{"reflect", PaddingMode::reflect},
                                     {"replicate", PaddingMode::replicate},
                                     {"circular", PaddingMode::circular}})
      check_function(fmt::format("conv2d {}", name), {{1, 4, 5, 2}, {3, 3, 3, 2}},
                     [mode = mode](const Tensors& in) {
                       return conv2d(in[0], in[1], {.padding = {1, 2}, .padding_mode = mode});
                     });
    check_function("conv_transpose1d", {{2, 4, 4}, {4, 3, 3}, {6}}, [](const Tensors& in) {
      return conv_transpose1d(in[0], in[1], in[2],
                              {.stride = 3, .padding = 1, .output_padding = 2, .groups = 2});
    });
    check_function("conv_transpose2d", {{2, 3, 4, 4}, {4, 3, 2, 2}, {4}}, [](const Tensors& in) {
      return conv_transpose2d(in[0], in[1], in[2], {{2, 3}, {1, 0}, {1, 2}, {1, 2}, 2});
    });
    check_function("conv3d", {{2, 4, 3, 4, 4}, {4, 2, 3, 2, 2}, {4}}, [](const Tensors& in) {
      return conv3d(in[0], in[1], in[2], {{2, 1, 1}, {1, 1, 0}, {2, 1, 2}, 2});
    });
  });
}

TEST_CASE("vision: PyTorch's sizes and gradients") {
  using enum InterpolationMode;
  on_each_device([] {
    for (const auto& [name, mode, aligned] : {std::tuple{"nearest", nearest, false},
                                              {"nearest-exact", nearest_exact, false},
                                              {"bilinear", linear, false},
                                              {"bilinear aligned", linear, true},
                                              {"bicubic", cubic, false},
                                              {"bicubic aligned", cubic, true},
                                              {"area", area, false}}) {
      const auto sized = [&](const char* how, InterpolateOptions o) {
        o.mode = mode;
        o.align_corners = aligned;
        check_function(fmt::format("{} {}", name, how), {{1, 4, 5, 2}},
                       [o](const Tensors& in) { return interpolate(in[0], o); });
      };
      sized("to more", {.size = {5, 7}});
      sized("to less", {.size = {2, 3}});
      sized("by factors", {.scale_factor = {1.7, 0.6}});
    }
    check_function("trilinear", {{1, 2, 3, 2, 2}}, [](const Tensors& in) {
      return interpolate(in[0], {.size = {3, 2, 5}, .mode = linear});
    });
    check_function("linear", {{2, 5, 3}}, [](const Tensors& in) {
      return interpolate(in[0], {.scale_factor = {2}, .mode = linear});
    });
    check_function("pixel_shuffle", {{1, 2, 3, 8}},
                   [](const Tensors& in) { return pixel_shuffle(in[0], 2); });
    check_function("pixel_unshuffle", {{1, 4, 2, 2}},
                   [](const Tensors& in) { return pixel_unshuffle(in[0], 2); });
    check_function("adaptive_avg_pool2d", {{2, 5, 7, 2}}, [](const Tensors& in) {
      return adaptive_avg_pool2d(in[0], {3, 4});
    });
    check_function("adaptive_max_pool2d", {{2, 5, 7, 2}}, [](const Tensors& in) {
      return adaptive_max_pool2d(in[0], {3, 4});
    });
    check_function("adaptive_max_pool1d", {{2, 7, 2}},
                   [](const Tensors& in) { return adaptive_max_pool1d(in[0], 3); });
  });
}

TEST_CASE("vision: what is not read does not spread") {
  on_each_device([] {
    constexpr float inf = std::numeric_limits<float>::infinity();
    const Tensor x = tensor({1, inf, 2, 3}, {1, 4, 1});
    const Values y = interpolate(x, {.size = {4}, .mode = InterpolationMode::linear}).to_vector();
    CHECK(y == Values{1, inf, 2, 3});
    const Tensor weight = full({1, 1, 1}, 1);
    CHECK(conv1d(x, weight).to_vector() == Values{1, inf, 2, 3});
  });
}

TEST_CASE("vision: ties go to the first, in large windows too") {
  on_each_device([] {
    const Tensor x = full({1, 95, 90, 1}, 1).set_requires_grad();  // two passes
    sum(adaptive_max_pool2d(x, 1)).backward();
    const Values dx = x.grad().to_vector();
    CHECK(dx[0] == 1);
    CHECK(std::count(dx.begin(), dx.end(), 0) == std::ssize(dx) - 1);
  });
}

TEST_CASE_FIXTURE(CpuDevice, "vision: layers are the ops" * doctest::test_suite("host")) {
  const Tensor line = value({2, 9, 4}, 1), image = value({2, 6, 5, 4}, 2);
  const Tensor volume = value({1, 4, 5, 3, 2}, 3);
  const auto same = [](const Tensor& a, const Tensor& b) {
    CHECK(a.shape() == b.shape());
    CHECK(a.to_vector() == b.to_vector());
  };
  Conv1d conv_1(4, 6, 3, {.padding = 1, .groups = 2});
  same(conv_1(line), conv1d(line, conv_1.weight, conv_1.bias, {.padding = 1, .groups = 2}));
  Conv2d conv_2(4, 3, {2, 4}, same_padding({2, 4}));
  CHECK(conv_2(image).shape() == Shape{2, 6, 5, 3});
  Conv3d conv_3(2, 4, {1, 3, 3}, {.padding = {0, 1, 1}, .bias = false});
  CHECK_FALSE(conv_3.bias.defined());
  same(conv_3(volume), conv3d(volume, conv_3.weight, {}, {.padding = {0, 1, 1}}));
  ConvTranspose1d up_1(4, 6, 4, {.stride = 2, .padding = 1});
  CHECK(up_1(line).shape() == Shape{2, 18, 6});
  ConvTranspose2d up_2(4, 6, {3, 2}, {.stride = 2, .output_padding = 1, .groups = 2});
  CHECK(up_2.weight.shape() == Shape{4, 3, 2, 3});
  same(up_2(image), conv_transpose2d(image, up_2.weight, up_2.bias,
                                     {.stride = 2, .output_padding = 1, .groups = 2}));
  const float bound = 1 / std::sqrt(3.0f * 6);  // PyTorch's fan in: out / groups * kernel
  float largest = 0;
  for (const float w : up_2.weight.to_vector()) largest = std::max(largest, std::abs(w));
  CHECK((largest <= bound && largest > 0.8f * bound));
  same(Upsample({.scale_factor = {2}})(image), interpolate(image, {.scale_factor = {2}}));
  same(PixelUnshuffle(2)(PixelShuffle(2)(image)), image);
  same(AdaptiveAvgPool2d({2, 3})(image), adaptive_avg_pool2d(image, {2, 3}));
  same(AdaptiveMaxPool2d(2)(image), adaptive_max_pool2d(image, 2));
  same(AdaptiveAvgPool1d(2)(line), adaptive_avg_pool1d(line, 2));
  same(AdaptiveMaxPool1d(2)(line), adaptive_max_pool1d(line, 2));
  CHECK(MaxPool1d(2)(line).shape() == Shape{2, 4, 4});
  same(AvgPool1d(3, 2, 1, false)(line),
       avg_pool1d(line, {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false}));
}

TEST_CASE_FIXTURE(CpuDevice, "vision: files have PyTorch's weights" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  Conv1d conv_1(4, 6, 3);
  ConvTranspose2d up_2(4, 6, {3, 2});
  Conv3d conv_3(2, 5, {4, 3, 1});
  const auto stored = [](const Module& m) {
    for (const NamedTensor& t : torch_state_dict(m))
      if (t.name == "weight") return t.tensor;
    return Tensor();
  };
  CHECK(stored(conv_1).shape() == Shape{6, 4, 3});
  CHECK(stored(up_2).shape() == Shape{4, 6, 3, 2});
  CHECK(stored(conv_3).shape() == Shape{5, 2, 4, 3, 1});
  const auto path = folder / "conv.safetensors";
  save_model(path, conv_3);
  Conv3d loaded(2, 5, {4, 3, 1});
  load_model(path, loaded);
  CHECK(loaded.weight.to_vector() == conv_3.weight.to_vector());
  CHECK(contiguous(stored(conv_3)).to_vector() ==
        contiguous(permute(conv_3.weight.detach(), {0, 4, 1, 2, 3})).to_vector());
}

TEST_CASE_FIXTURE(CpuDevice,
                  "vision: what does not fit is refused by name" * doctest::test_suite("host")) {
  const Tensor x = zeros({2, 5, 6, 4}), line = zeros({2, 5, 4}), w = zeros({4, 3, 3, 2});
  const auto refuses = []<class E>(std::type_identity<E>, const char* text, auto&& call) {
    const std::string message = message_of<E>(call);
    CHECK_MESSAGE(message.find(text) != std::string::npos, message);
  };
  const auto shape = [&](const char* text, auto&& call) {
    refuses(std::type_identity<ShapeError>(), text, call);
  };
  const auto value = [&](const char* text, auto&& call) {
    refuses(std::type_identity<ValueError>(), text, call);
  };
  shape("[conv1d] needs x [N, L, C]", [&] { conv1d(x, w); });
  shape("[conv1d] the window must fit", [&] { conv1d(line, zeros({1, 6, 4})); });
  shape("[conv1d] bias must be [O], got", [&] { conv1d(line, zeros({1, 2, 4}), zeros({4})); });
  shape("[conv3d] channels must be", [&] {
    conv3d(zeros({1, 3, 3, 3, 2}), zeros({1, 1, 1, 1, 3}));
  });
  shape("[conv_transpose2d] channels must be", [&] { conv_transpose2d(x, zeros({3, 2, 2, 4})); });
  shape("[conv_transpose2d] the padding must leave",
        [&] { conv_transpose2d(x, w, {}, {.padding = 4}); });
  value("[conv_transpose2d] output_padding must be less",
        [&] { conv_transpose2d(x, w, {}, {.stride = 2, .output_padding = 2}); });
  value("padding not negative", [&] { conv2d(x, w, {.padding_end = Size2d(-1, 0)}); });
  value("[same_padding] the stride must be 1", [&] { same_padding(3, {.stride = 2}); });
  shape("[pad] sizes must be 0 to 4", [&] {
    pad(x, {0, 5, 0, 0}, {0, 0, 0, 0}, PaddingMode::reflect);
  });
  value("[interpolate] needs either size or scale_factor", [&] { interpolate(x, {}); });
  value("[interpolate] align_corners is for linear",
        [&] { interpolate(x, {.size = {3}, .align_corners = true}); });
  value("[interpolate] cubic needs",
        [&] { interpolate(line, {.size = {3}, .mode = InterpolationMode::cubic}); });
  shape("[interpolate] sizes must be 1", [&] { interpolate(x, {.scale_factor = {0.1}}); });
  value("[interpolate] scale_factor must be positive",
        [&] { interpolate(x, {.scale_factor = {-1}}); });
  shape("[pixel_shuffle] the square", [&] { pixel_shuffle(x, 3); });
  shape("[pixel_unshuffle] the factor 4", [&] { pixel_unshuffle(x, 4); });
  shape("[adaptive_max_pool2d] sizes must be positive", [&] { adaptive_max_pool2d(x, {0, 1}); });
  value("[Conv1d] kernel must be positive", [] { Conv1d(2, 2, 0); });
  value("[ConvTranspose2d] output_padding",
        [] { ConvTranspose2d(2, 2, 3, {.output_padding = 1}); });
  refuses(std::type_identity<DTypeError>(), "[interpolate] needs a float tensor", [] {
    interpolate(zeros({1, 2, 2, 1}, DType::i32), {.size = {3}});
  });
}

TEST_CASE_FIXTURE(CpuDevice, "conv3d: holds its input once" * doctest::test_suite("host")) {
  const Tensor w = value({4, 3, 3, 3, 4}, 1).set_requires_grad();
  const Tensor leaf = value({2, 6, 8, 8, 4}, 2).set_requires_grad();
  const uint64_t before = device->live();
  Tensor y = conv3d(leaf + 1.0f, w, {}, {.padding = 1});
  CHECK(device->live() - before <= leaf.bytes() + y.bytes() + 512);
  sum(y).backward();
  CHECK(leaf.grad().shape() == leaf.shape());
}

}  // namespace rw::test
