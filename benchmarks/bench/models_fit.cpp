// The largest batches of the library's models at full size in the memory of one GPU, by dry runs:
// plain, with a segment per block, and under a budget. Writes a table; nothing of it is run.
#include <fmt/format.h>

#include "benchmarks/bench/bench.h"
#include "benchmarks/memory/measure.h"
#include "models/gpt.h"
#include "models/mobilenet.h"
#include "models/unet.h"
#include "models/vit.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/adam.h"
#include "planner/forecast/fit.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

// A loss for a batch of so many samples.
template <class Model>
using BatchLoss = Tensor (*)(Model& model, int64_t batch, DType dtype);

template <class Model, class Config>
MakeSteps model_steps(const Config& config, BatchLoss<Model> loss_of) {
  return training_steps([=](const StepSettings& settings) {
    auto model = std::make_shared<Model>(config);
    auto optimizer = std::make_shared<AdamW>(model->parameters());
    return [=] {
      Tensor loss;
      {
        const Autocast half(settings.dtype, settings.dtype != DType::f32);
        loss = loss_of(*model, settings.batch, settings.dtype);
      }
      optimizer->backward(loss);
      optimizer->step();
      optimizer->zero_grad();
    };
  });
}

template <class Model>
Tensor classify(Model& model, int64_t batch, DType dtype) {
  Tensor images = empty({batch, 224, 224, 3}, dtype);
  return cross_entropy(model(std::move(images)), empty({batch}, DType::i32));
}

Tensor segment(UNet& model, int64_t batch, DType dtype) {
  const Tensor scores = model(empty({batch, 512, 512, 3}, dtype));
  return cross_entropy(flatten(scores, 0, 2), empty({batch * 512 * 512}, DType::i32));
}

Tensor continue_batch(GptLMHeadModel& model, int64_t batch, DType) {
  return model.loss(empty({batch, 1024}, DType::i32), empty({batch, 1024}, DType::i32));
}

struct ModelRow {
  const char* title;
  MakeSteps make;
};

std::vector<ModelRow> model_rows() {
  return {
      {"ViT-Ti/16, images of 224 x 224",
       model_steps<ViT>(ViTConfig::preset("tiny"), classify<ViT>)},
      {"ViT-B/16, images of 224 x 224", model_steps<ViT>(ViTConfig::preset("base"), classify<ViT>)},
      {"MobileNetV2, images of 224 x 224",
       model_steps<MobileNetV2>(MobileNetConfig{}, classify<MobileNetV2>)},
      {"U-Net of 64 to 1024 channels, images of 512 x 512",
       model_steps<UNet>(UNetConfig{}, segment)},
      {"GPT-2 small, 1024 tokens",
       model_steps<GptLMHeadModel>(GptConfig::preset("gpt2"), continue_batch)}};
}

}  // namespace

Run models_fit(CLI::App& app) {
  app.description("The largest batches of the library's models in the memory of one GPU.");
  struct Options {
    std::string profile = "rx7900xtx.json";
    std::string memory = "8GiB";
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--profile", o->profile)->capture_default_str();
  shared_option(app, "--memory", o->memory)->capture_default_str();
  return [o] {
    const uint64_t bytes = parse_bytes(o->memory);
    fmt::print(
        "# Models in {:.2f} GiB\n\nAdamW; dry runs with the profile {}; samples are images, or "
        "texts.\n",
        static_cast<double>(bytes) / (1 << 30), o->profile);
    const std::unique_ptr<Backend> device = memory::open_profile(o->profile).open();
    for (const ModelRow& row : model_rows()) {
      const Planner planner({.make = row.make, .settings = {.batch = 1}}, *device);
      fmt::print("\n## {}\n\n{}\n", row.title, fit_table(fit(planner, bytes), bytes));
      std::fflush(stdout);
    }
  };
}

}  // namespace rw::bench
