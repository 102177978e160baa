// Peak memory of one f32 training step without any recomputation, beside PyTorch's: the same models
// are in peers/plain_step.py. Predicted by a dry run, which is exact; --run takes the steps on the
// device, too.
#include <fmt/format.h>

#include <algorithm>

#include "benchmarks/bench/bench.h"
#include "models/bert.h"
#include "models/resnet.h"
#include "nn/norm.h"
#include "nn/transformer/attention.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/operators.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

constexpr int steps = 2;

void train_plainly(Optimizer& optimizer, const std::function<Tensor()>& loss) {
  for (int i = 0; i < steps; ++i) {
    optimizer.backward(loss());
    optimizer.step();
    optimizer.zero_grad();
    default_device()->end_step();
  }
}

// [N, H, W, 4 C] -> [N, 2 H, 2 W, C].
Tensor pixel_shuffle(Tensor x) {
  const int64_t n = x.size(0), h = x.size(1), w = x.size(2), c = x.size(3) / 4;
  x = reshape(std::move(x), {n, h, w, 2, 2, c});
  return reshape(permute(std::move(x), {0, 1, 3, 2, 4, 5}), {n, 2 * h, 2 * w, c});
}

Tensor crop(Tensor x, const Tensor& like) {
  x = slice(std::move(x), 1, 0, like.size(1));
  return slice(std::move(x), 2, 0, like.size(2));
}

// Two 3x3 convolutions with group norm.
class Block : public Module {
 public:
  Block(int64_t inputs, int64_t outputs, int stride)
      : conv1_(inputs, outputs, 3, {.stride = stride, .padding = 1, .bias = false}),
        norm1_(8, outputs),
        conv2_(outputs, outputs, 3, {.padding = 1, .bias = false}),
        norm2_(8, outputs) {
    register_module("conv1", conv1_);
    register_module("norm1", norm1_);
    register_module("conv2", conv2_);
    register_module("norm2", norm2_);
  }
  Tensor forward(Tensor x) override {
    x = relu(norm1_(conv1_(std::move(x))));
    return relu(norm2_(conv2_(std::move(x))));
  }

 private:
  Conv2d conv1_;
  GroupNorm norm1_;
  Conv2d conv2_;
  GroupNorm norm2_;
};

// Four levels, upsampling by 1x1 convolutions and pixel shuffles, skips joined by concat.
class UNet : public Module {
 public:
  explicit UNet(int64_t base = 24, int levels = 4, int64_t classes = 5) : head_(base, classes, 1) {
    const auto width = [&](int level) { return base << level; };
    const auto add = [&](auto& list, const char* name, auto&&... args) {
      using M = typename std::decay_t<decltype(list)>::value_type::element_type;
      list.push_back(std::make_unique<M>(args...));
      register_module(fmt::format("{}.{}", name, list.size() - 1), *list.back());
    };
    for (int i = 0; i < levels; ++i)
      add(down_, "down", i == 0 ? 3 : width(i - 1), width(i), i == 0 ? 1 : 2);
    for (int i = 0; i + 1 < levels; ++i) {
      add(up_, "up", width(i + 1), 4 * width(i), 1);
      add(join_, "join", 2 * width(i), width(i), 1);
    }
    register_module("head", head_);
  }
  Tensor forward(Tensor x) override {
    std::vector<Tensor> skips;
    for (auto& block : down_) {
      x = (*block)(std::move(x));
      skips.push_back(x);
    }
    skips.pop_back();
    for (size_t i = up_.size(); i-- > 0;) {
      Tensor skip = std::move(skips.back());
      skips.pop_back();
      x = (*join_[i])(concat({crop(pixel_shuffle((*up_[i])(std::move(x))), skip), skip}, -1));
    }
    return head_(std::move(x));
  }

 private:
  std::vector<std::unique_ptr<Block>> down_, join_;
  std::vector<std::unique_ptr<Conv2d>> up_;
  Conv2d head_;
};

// Causal layers between an embedding and the logits that share its table.
class Decoder : public Module {
 public:
  Decoder(int64_t vocabulary, int64_t hidden, int layers, int64_t length)
      : tokens_(vocabulary, hidden), places_(length, hidden), norm_(hidden) {
    register_module("tokens", tokens_);
    register_module("places", places_);
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(std::make_unique<BertLayer>(BertLayerOptions{.hidden = hidden,
                                                                     .heads = 4,
                                                                     .intermediate = 4 * hidden,
                                                                     .dropout = 0,
                                                                     .attention_dropout = 0,
                                                                     .pre_norm = true,
                                                                     .causal = true},
                                                    default_generator()));
      register_module(fmt::format("layers.{}", i), *layers_.back());
    }
    register_module("norm", norm_);
  }
  Tensor forward(Tensor ids) override {
    Tensor x = tokens_(ids) + places_.weight;
    for (auto& layer : layers_) x = layer->forward(std::move(x));
    return linear(norm_(std::move(x)), tokens_.weight);
  }

 private:
  Embedding tokens_, places_;
  std::vector<std::unique_ptr<BertLayer>> layers_;
  LayerNorm norm_;
};

void run_unet() {
  UNet model;
  Adam adam(model.parameters());
  const Tensor x = data({2, 101, 77, 3}), y = data({2 * 101 * 77}, DType::i32);
  train_plainly(adam, [&] { return cross_entropy(flatten(model(x), 0, 2), y); });
}

void run_resnet() {
  ResNet model(resnet_imagenet(50));
  SGD sgd(model.parameters(), {.lr = 0.1f, .momentum = 0.9f});
  const Tensor x = data({8, 224, 224, 3}), y = data({8}, DType::i32);
  train_plainly(sgd, [&] { return cross_entropy(model(x), y); });
}

void run_decoder() {
  Decoder model(8000, 256, 6, 128);
  AdamW adam(model.parameters());
  const Tensor x = data({4, 128}, DType::i32), y = data({4 * 128}, DType::i32);
  train_plainly(adam, [&] { return cross_entropy(flatten(model(x), 0, 1), y); });
}

void run_bert() {
  BertForPreTraining model(BertConfig::preset("base"));
  AdamW adam(model.parameters());
  const BertInput input{.ids = data({4, 128}, DType::i32),
                        .token_types = data({4, 128}, DType::i32)};
  const Tensor positions = data({80}, DType::i32), targets = data({80}, DType::i32);
  const Tensor next = data({4}, DType::i32);
  train_plainly(adam, [&] {
    const Tensor hidden = model.forward(input);
    return add(model.token_loss(hidden, positions, targets),
               cross_entropy(model.next_sentence_logits(hidden), next));
  });
}

struct StepRow {
  const char* name;
  void (*run)();
};
constexpr StepRow step_rows[] = {{"unet", run_unet},
                                 {"resnet50", run_resnet},
                                 {"bert-base", run_bert},
                                 {"decoder", run_decoder}};

}  // namespace

Run plain_step(CLI::App& app) {
  app.description("Peak memory of one plain f32 training step (see peers/plain_step.py).");
  struct Options {
    std::string device = "cpu";
    std::vector<std::string> names;
    bool runs = false;
  };
  const auto o = std::make_shared<Options>();
  app.add_option("models", o->names, "unet, resnet50, bert-base, decoder; default: all");
  shared_option(app, "--device", o->device, "predict its memory")->capture_default_str();
  app.add_flag("--run", o->runs, "also take the steps");
  return [o] {
    set_default_device(open_backend(o->device));
    for (const StepRow& row : step_rows) {
      if (!o->names.empty() && std::ranges::find(o->names, row.name) == o->names.end()) continue;
      fmt::print("{} {:.1f}", row.name, mib(plan(row.run).memory.peak));
      if (o->runs) {
        default_device()->reset_peak();
        row.run();
        fmt::print(" {:.1f}", mib(default_device()->memory_report().peak));
      }
      fmt::print("\n");
    }
  };
}

}  // namespace rw::bench
