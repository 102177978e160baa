#include "benchmarks/memory/workloads.h"

#include <numeric>
#include <optional>

#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace rw::memory {

namespace {

void drop_gradients(const std::vector<Tensor>& parameters) {
  for (Tensor p : parameters) p.set_grad({});
}

Tensor zeros_of(Purpose purpose, const Shape& shape, DType dtype) {
  const PurposeScope scope(purpose);
  return zeros(shape, dtype);
}

int every(const StepSettings& settings) {
  return settings.checkpoint == "block" ? settings.checkpoint_every : 0;
}

class ResNetSteps : public TrainingSteps {
 public:
  ResNetSteps(const ResNetWorkload& o, const StepSettings& settings)
      : model_((manual_seed(1), o.config)), parameters_(model_.parameters()), dtype_(o.dtype) {
    model_.set_checkpoint(every(settings));
    if (o.optimizer) sgd_.emplace(parameters_, SGDOptions{.lr = 0.1f, .momentum = 0.9f});
    images_ = zeros_of(Purpose::data, {o.batch, o.size, o.size, 3}, o.dtype);
    labels_ = zeros_of(Purpose::data, {o.batch}, DType::i32);
  }

  void dry_step(const BatchShape&) override {
    train();
    default_device()->end_step();
  }

 private:
  void train() {
    const Autocast autocast(dtype_, dtype_ != DType::f32);
    const Tensor loss = cross_entropy(model_.forward(images_), labels_);
    if (!sgd_) {
      loss.backward();
      return drop_gradients(parameters_);
    }
    sgd_->backward(loss);
    sgd_->step();
    sgd_->zero_grad();
  }

  ResNet model_;
  const std::vector<Tensor> parameters_;
  const DType dtype_;
  std::optional<SGD> sgd_;
  Tensor images_, labels_;
};

class BertSteps : public TrainingSteps {
 public:
  BertSteps(const BertWorkload& o, const StepSettings& settings)
      : model_((manual_seed(1), BertConfig::preset(o.preset))),
        adam_(model_.parameters()),
        dtype_(o.dtype) {
    model_.bert.set_checkpoint(every(settings));
    if (o.dtype == DType::f16) adam_.set_scaler(LossScaler::dynamic());
    const int64_t masked = (o.length * 15 + 99) / 100;  // of each sequence
    std::vector<int32_t> at;
    for (int64_t i = 0; i < o.batch; ++i)
      for (int64_t j = 0; j < masked; ++j) at.push_back(static_cast<int32_t>(i * o.length + j));
    input_ = {.ids = zeros_of(Purpose::data, {o.batch, o.length}, DType::i32),
              .token_types = zeros_of(Purpose::data, {o.batch, o.length}, DType::i32)};
    targets_ = zeros_of(Purpose::data, {o.batch * masked}, DType::i32);
    next_ = zeros_of(Purpose::data, {o.batch}, DType::i32);
    const PurposeScope scope(Purpose::data);
    positions_ = tensor(at, {o.batch * masked});
  }

  void dry_step(const BatchShape&) override {
    train();
    default_device()->end_step();
  }

 private:
  Tensor loss() {
    const Autocast autocast(dtype_, dtype_ != DType::f32);
    const Tensor hidden = model_.forward(input_);
    return add(model_.token_loss(hidden, positions_, targets_),
               cross_entropy(model_.next_sentence_logits(hidden), next_));
  }
  void train() {
    adam_.backward(loss());
    adam_.step();
    adam_.zero_grad();
  }

  BertForPreTraining model_;
  AdamW adam_;
  const DType dtype_;
  BertInput input_;
  Tensor positions_, targets_, next_;
};

class GptSteps : public TrainingSteps {
 public:
  GptSteps(const GptConfig& config, int64_t batch, int64_t length, const StepSettings& settings)
      : model_((manual_seed(1), config)), adam_(model_.parameters()) {
    model_.transformer.set_checkpoint(every(settings));
    ids_ = zeros_of(Purpose::data, {batch, length}, DType::i32);
  }

  void dry_step(const BatchShape&) override {
    adam_.backward(model_.loss(ids_, ids_));
    adam_.step();
    adam_.zero_grad();
    default_device()->end_step();
  }

 private:
  GptLMHeadModel model_;
  AdamW adam_;
  Tensor ids_;
};

class ChainSteps : public TrainingSteps {
 public:
  ChainSteps(int64_t ops, int64_t elements, const StepSettings& settings)
      : ops_(ops),
        every_(every(settings)),
        x_(zeros_of(Purpose::parameter, {elements}, DType::f32)) {
    x_.set_requires_grad();
  }

  void dry_step(const BatchShape&) override {
    loss().backward();
    drop_gradients({x_});
    default_device()->end_step();
  }

 private:
  Tensor loss() {
    Tensor y = x_;
    std::optional<CheckpointScope> segment;
    for (int64_t i = 0; i < ops_; ++i) {
      if (every_ && i % every_ == 0) {
        segment.reset();
        segment.emplace();
      }
      y = tanh(std::move(y));
    }
    return sum(y);
  }

  const int64_t ops_;
  const int every_;
  Tensor x_;
};

std::string image(int64_t size) {
  return fmt::format("{0}x{0}x3", size);
}

}  // namespace

Workload resnet_workload(const ResNetWorkload& o) {
  const char* state = o.optimizer ? ", SGD momentum" : "; no optimizer";
  return {.about = {.model = o.model,
                    .depth = o.depth,
                    .scale = o.scale,
                    .batch = o.batch,
                    .input = image(o.size),
                    .dtype = o.dtype,
                    .norm = o.config.norm ? "BatchNorm on" : "BatchNorm off",
                    .in_peak = fmt::format("images, parameters, gradients, activations, "
                                           "workspaces{}",
                                           state)},
          .make = [o](const StepSettings& s) { return std::make_unique<ResNetSteps>(o, s); }};
}

Workload cifar_workload(int k, int64_t batch, bool norm, DType dtype) {
  const int depth = 6 * k + 2;
  ResNetConfig config = resnet_cifar(depth, 2);
  config.norm = norm;
  return resnet_workload({.model = "CIFAR ResNet v2",
                          .config = config,
                          .depth = depth,
                          .scale = k,
                          .batch = batch,
                          .dtype = dtype});
}

Workload resnet50_workload(int64_t batch, DType dtype) {
  return resnet_workload({.model = "ResNet-50",
                          .config = resnet_imagenet(50),
                          .depth = 50,
                          .scale = 50,
                          .batch = batch,
                          .size = 224,
                          .dtype = dtype,
                          .optimizer = true});
}

Workload resnet1001_workload(int64_t batch, DType dtype) {
  ResNetConfig config = resnet_imagenet(50);
  config.depths = {16, 121, 180, 16};
  config.pre_activation = true;
  const int layers = 3 * std::accumulate(config.depths.begin(), config.depths.end(), 0) + 2;
  return resnet_workload({.model = "bottleneck ResNet v2",
                          .config = config,
                          .depth = layers,
                          .scale = layers,
                          .batch = batch,
                          .size = 224,
                          .dtype = dtype});
}

Workload bert_workload(const BertWorkload& o) {
  const BertConfig config = BertConfig::preset(o.preset);
  return {.about = {.model = "BERT-" + o.preset,
                    .depth = config.num_hidden_layers,
                    .scale = o.length,
                    .batch = o.batch,
                    .input = fmt::format("{} tokens", o.length),
                    .dtype = o.dtype,
                    .norm = "LayerNorm, dropout 0.1",
                    .in_peak = "tokens, f32 parameters, gradients and Adam state, activations, "
                               "workspaces"},
          .make = [o](const StepSettings& s) { return std::make_unique<BertSteps>(o, s); }};
}

Workload gpt_workload(GptConfig config, int64_t batch, int64_t length) {
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  return {.about = {.model = fmt::format("decoder of width {}", config.n_embd),
                    .depth = config.n_layer,
                    .scale = length,
                    .batch = batch,
                    .input = fmt::format("{} tokens", length),
                    .norm = "LayerNorm, no dropout",
                    .in_peak = "tokens, f32 parameters, gradients and Adam state, activations, "
                               "workspaces"},
          .make = [=](const StepSettings& s) {
            return std::make_unique<GptSteps>(config, batch, length, s);
          }};
}

Workload chain_workload(int64_t ops, int64_t elements) {
  return {.about = {.model = "tanh chain",
                    .depth = ops,
                    .scale = ops,
                    .batch = 1,
                    .input = fmt::format("{} floats", elements),
                    .dtype = DType::f32,
                    .norm = "no normalisation",
                    .in_peak = "input, its gradient, activations"},
          .make = [=](const StepSettings& s) {
            return std::make_unique<ChainSteps>(ops, elements, s);
          }};
}

}  // namespace rw::memory
