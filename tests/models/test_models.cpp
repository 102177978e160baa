// Models of models/ that have no file of their own: sizes and names as published, shapes,
// gradients under checkpoint segments, files.
#include <filesystem>

#include "core/memory/default_device.h"
#include "io/models/model.h"
#include "models/gpt.h"
#include "models/mobilenet.h"
#include "models/unet.h"
#include "models/vit.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

const MobileNetConfig small_mobilenet = {.classes = 5,
                                         .stem_stride = 1,
                                         .dropout = 0,
                                         .stages = {{1, 8, 1, 1}, {4, 8, 2, 2}},
                                         .stem = 8,
                                         .head = 16};
const UNetConfig small_unet = {.channels = 2, .classes = 3, .width = 4, .levels = 2};
const ViTConfig small_vit = {.image_size = 8,
                             .patch_size = 4,
                             .hidden = 16,
                             .layers = 3,
                             .heads = 2,
                             .mlp = 24,
                             .classes = 5};

bool has_parameter(const Module& module, const std::string& name, const Shape& shape) {
  for (const NamedTensor& p : torch_state_dict(module))
    if (p.name == name) return p.tensor.shape() == shape;
  return false;
}

template <class Model, class Config>
void check_file(const Config& config, const Tensor& x) {
  const TemporaryFolder folder;
  Model model(config), other(config);
  model.eval(), other.eval();
  save_model(folder / "model.safetensors", model);
  load_model(folder / "model.safetensors", other);
  const NoGrad no_grad;
  CHECK(other(x).to_vector() == model(x).to_vector());
}

}  // namespace

TEST_SUITE_BEGIN("host");

// As torchvision, PyTorch-UNet and transformers count them.
TEST_CASE("models: as many parameters as published") {
  const DeviceScope scope(Device::create(open_backend("dry")));
  CHECK(MobileNetV2().parameter_count() == 3504872);
  CHECK(MobileNetV2({.width = 0.5f}).parameter_count() == 1968680);
  CHECK(ViT(ViTConfig::preset("base")).parameter_count() == 86567656);
  CHECK(ViT(ViTConfig::preset("large")).parameter_count() == 304326632);
  CHECK(ViT(ViTConfig::preset("tiny")).parameter_count() == 5717416);
  CHECK(UNet({}).parameter_count() == 31037698);
  CHECK(GptLMHeadModel(GptConfig::preset("gpt2")).parameter_count() == 124439808);
}

TEST_CASE_FIXTURE(CpuDevice, "models: their usual names") {
  const MobileNetV2 mobilenet;
  CHECK(has_parameter(mobilenet, "features.0.0.weight", {32, 3, 3, 3}));
  CHECK(has_parameter(mobilenet, "features.1.conv.0.0.weight", {32, 1, 3, 3}));
  CHECK(has_parameter(mobilenet, "features.1.conv.2.running_var", {16}));
  CHECK(has_parameter(mobilenet, "features.2.conv.1.0.weight", {96, 1, 3, 3}));
  CHECK(has_parameter(mobilenet, "features.18.0.weight", {1280, 320, 1, 1}));
  CHECK(has_parameter(mobilenet, "classifier.1.weight", {1000, 1280}));
  const ViT vit(small_vit);
  CHECK(has_parameter(vit, "class_token", {1, 1, 16}));
  CHECK(has_parameter(vit, "conv_proj.weight", {16, 3, 4, 4}));
  CHECK(has_parameter(vit, "encoder.pos_embedding", {1, 5, 16}));
  CHECK(
      has_parameter(vit, "encoder.layers.encoder_layer_2.self_attention.in_proj_weight", {48, 16}));
  CHECK(has_parameter(vit, "encoder.layers.encoder_layer_0.mlp.3.weight", {16, 24}));
  CHECK(has_parameter(vit, "encoder.ln.bias", {16}));
  CHECK(has_parameter(vit, "heads.head.weight", {5, 16}));
  const UNet unet(small_unet);
  CHECK(has_parameter(unet, "inc.double_conv.0.weight", {4, 2, 3, 3}));
  CHECK(has_parameter(unet, "down2.maxpool_conv.1.double_conv.4.weight", {16}));
  CHECK(has_parameter(unet, "up1.up.weight", {16, 8, 2, 2}));
  CHECK(has_parameter(unet, "up2.conv.double_conv.0.weight", {4, 8, 3, 3}));
  CHECK(has_parameter(unet, "outc.conv.bias", {3}));
}

TEST_CASE_FIXTURE(CpuDevice, "models: files hold all of them") {
  manual_seed(4);
  check_file<MobileNetV2>(small_mobilenet, rand({2, 8, 8, 3}));
  check_file<ViT>(small_vit, rand({2, 8, 8, 3}));
  check_file<UNet>(small_unet, rand({2, 8, 12, 2}));
}

TEST_CASE_FIXTURE(CpuDevice, "models: shapes, and what is refused") {
  UNet unet(small_unet);
  CHECK(unet(rand({2, 8, 12, 2})).shape() == Shape{2, 8, 12, 3});
  CHECK(contains(message_of<ShapeError>([&] { unet(rand({2, 8, 10, 2})); }), "multiples of 4"));
  CHECK(contains(message_of<ShapeError>([] {
                   ViT model(small_vit);
                   model(rand({2, 4, 8, 3}));
                 }),
                 "[N, 8, 8, 3]"));
  CHECK(contains(message_of<ShapeError>([] {
                   MobileNetV2 m(small_mobilenet);
                   m(rand({2, 8, 8, 1}));
                 }),
                 "[N, H, W, 3]"));
  CHECK(contains(message_of<ValueError>([] { ViT(ViTConfig{.image_size = 10, .patch_size = 4}); }),
                 "divide"));
  CHECK(contains(message_of<ValueError>([] { UNet(UNetConfig{.levels = 0}); }), "levels"));
  CHECK(contains(message_of<ValueError>([] { ViTConfig::preset("huge"); }), "'huge'"));
}

TEST_CASE_FIXTURE(CpuDevice, "models: a vision transformer's segments give the same bits") {
  const auto gradients = [](size_t every) {
    manual_seed(5);
    ViTConfig config = small_vit;
    config.dropout = 0.2f;
    ViT model(config);
    model.set_checkpoint(every);
    std::vector<std::vector<float>> all;
    const Tensor loss =
        cross_entropy(model(rand({3, 8, 8, 3})), tensor(std::vector<int32_t>{0, 4, 2}, {3}));
    loss.backward();
    all.push_back(loss.detach().to_vector());
    for (const Tensor& p : model.parameters())
      if (p.grad()) all.push_back(p.grad().to_vector());
    return all;
  };
  const auto plain = gradients(0);
  CHECK(plain.size() > 30);
  CHECK(gradients(1) == plain);
  CHECK(gradients(2) == plain);
}

TEST_SUITE_END();

}  // namespace rw::test
