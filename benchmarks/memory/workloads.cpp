#include "benchmarks/memory/workloads.h"

#include <numeric>
#include <optional>

#include "rewind/core/ops/autocast.h"
#include "rewind/core/ops/ops.h"
#include "rewind/optim/adam.h"
#include "rewind/optim/sgd.h"

namespace rw::memory {

namespace {

void drop_gradients(const std::vector<Tensor>& parameters) {
  for (Tensor p : parameters) p.set_grad({});
}

Tensor zeros_of(Purpose purpose, const Shape& shape, DType dtype) {
  const PurposeScope scope(purpose);
  return zeros(shape, dtype);
}

void run_resnet(const ResNetWorkload& o, const Run& run) {
  manual_seed(1);
  ResNet model(o.config);
  if (run.segments_every) model.set_checkpoint(CheckpointMode::block, run.segments_every);
  const std::vector<Tensor> parameters = model.parameters();
  std::optional<SGD> sgd;
  if (o.optimizer) sgd.emplace(parameters, SGDOptions{.lr = 0.1f, .momentum = 0.9f});
  const Tensor images = zeros_of(Purpose::data, {o.batch, o.size, o.size, 3}, o.dtype);
  const Tensor labels = zeros_of(Purpose::data, {o.batch}, DType::i32);
  const Autocast autocast(o.dtype, o.dtype == DType::f16);
  take_steps(
      run, [&] { return cross_entropy(model.forward(images), labels); },
      [&](const Tensor& loss) {
        if (sgd) {
          sgd->backward(loss);
          sgd->step();
          sgd->zero_grad();
        } else {
          loss.backward();
          drop_gradients(parameters);
        }
      });
}

void run_bert(const BertWorkload& o, const Run& run) {
  manual_seed(1);
  const BertConfig config = BertConfig::preset(o.preset);
  BertForPreTraining model(config);
  model.bert.set_checkpoint(run.segments_every);
  AdamW adam(model.parameters());
  if (o.dtype == DType::f16) adam.set_scaler(LossScaler::dynamic());

  const int64_t masked = (o.length * 15 + 99) / 100;  // of each sequence
  std::vector<int32_t> at;
  for (int64_t i = 0; i < o.batch; ++i)
    for (int64_t j = 0; j < masked; ++j) at.push_back(static_cast<int32_t>(i * o.length + j));
  const BertInput input{.ids = zeros_of(Purpose::data, {o.batch, o.length}, DType::i32),
                        .token_types = zeros_of(Purpose::data, {o.batch, o.length}, DType::i32)};
  const Tensor targets = zeros_of(Purpose::data, {o.batch * masked}, DType::i32);
  const Tensor next = zeros_of(Purpose::data, {o.batch}, DType::i32);
  const Tensor positions = [&] {
    const PurposeScope scope(Purpose::data);
    return tensor(at, {o.batch * masked});
  }();
  const Autocast autocast(o.dtype, o.dtype == DType::f16);
  take_steps(
      run,
      [&] {
        const Tensor hidden = model.forward(input);
        return add(model.token_loss(hidden, positions, targets),
                   cross_entropy(model.next_sentence_logits(hidden), next));
      },
      [&](const Tensor& loss) {
        adam.backward(loss);
        adam.step();
        adam.zero_grad();
      });
}

void run_chain(int64_t ops, int64_t elements, const Run& run) {
  Tensor x = zeros_of(Purpose::parameter, {elements}, DType::f32);
  x.set_requires_grad();
  take_steps(
      run,
      [&] {
        Tensor y = x;
        std::optional<CheckpointScope> segment;
        for (int64_t i = 0; i < ops; ++i) {
          if (run.segments_every && i % run.segments_every == 0) {
            segment.reset();
            segment.emplace();
          }
          y = tanh(std::move(y));
        }
        return sum(y);
      },
      [&](const Tensor& loss) {
        loss.backward();
        drop_gradients({x});
      });
}

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
          .run = [o](const Run& run) { run_resnet(o, run); }};
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
          .run = [o](const Run& run) { run_bert(o, run); }};
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
          .run = [=](const Run& run) { run_chain(ops, elements, run); }};
}

}  // namespace rw::memory
