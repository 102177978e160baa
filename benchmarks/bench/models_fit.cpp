// The library's models at full size in the memory of one GPU, by dry runs: the largest batches,
// with all that may be done for them, and what one number for memory chooses. Nothing of it is run.
#include <fmt/format.h>

#include <thread>

#include "benchmarks/bench/bench.h"
#include "benchmarks/memory/measure.h"
#include "dist/step_ranks.h"
#include "models/gpt.h"
#include "models/mobilenet.h"
#include "models/unet.h"
#include "models/vit.h"
#include "nn/init.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/adam.h"
#include "planner/choices/choice_text.h"
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
    const init::HostParameters there(settings.offloads_parameters());
    auto model = std::make_shared<Model>(config);
    auto ranks = std::make_shared<StepRanks>(settings);
    std::shared_ptr<Optimizer> optimizer = ranks->wrap(AdamW(ranks->placed(model->parameters())));
    return [model, ranks, optimizer, settings, loss_of] {
      Tensor loss;
      {
        const Autocast half(settings.dtype, settings.dtype != DType::f32);
        loss = loss_of(*model, settings.batch, settings.dtype);
      }
      optimizer->backward(loss);
      loss = {};
      optimizer->step();
      optimizer->zero_grad();
      default_device()->end_step();
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

Run model_choices(CLI::App& app) {
  app.description("What one number for memory chooses for ViT-B/16 or a U-Net.");
  struct Options {
    std::string device = "dry:rx7900xtx.json", model = "vit-b";
    std::string memory = "8GiB", host_memory = "64GiB";
    int64_t batch = 128;
    bool front = false;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--model", o->model)->check(CLI::IsMember({"vit-b", "unet"}));
  shared_option(app, "--batch", o->batch, "samples per update");
  shared_option(app, "--device", o->device);
  shared_option(app, "--memory", o->memory);
  shared_option(app, "--host-memory", o->host_memory);
  shared_flag(app, "--front", o->front);
  return [o] {
    const bool is_unet = o->model == "unet";
    const TrainingProgram program = {
        .title = o->model,
        .samples = "images",
        .make = is_unet ? model_steps<UNet>(UNetConfig{}, segment)
                        : model_steps<ViT>(ViTConfig::preset("base"), classify<ViT>),
        .settings = {.dtype = DType::f16, .batch = o->batch},
        .has_batch_statistics = is_unet};
    const std::unique_ptr<Backend> device = open_backend(o->device);
    const Planner planner(program, *device);
    Choices choices(planner, program.settings,
                    {.bytes = parse_bytes(o->memory),
                     .host_bytes = parse_bytes(o->host_memory),
                     .threads = std::thread::hardware_concurrency()});
    const std::optional<Choice> chosen = choices.quickest();
    if (!chosen) throw OutOfMemory(refusal_text(choices));
    fmt::print("{}By hand: {}\n", choice_table(choices, *chosen), chosen->options);
    if (o->front) fmt::print("\n{}", front_table(choices.front()));
  };
}

}  // namespace rw::bench
