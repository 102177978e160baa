#include "apps/common/standard_steps.h"

#include <memory>

#include "apps/common/mnist_mlp.h"
#include "core/memory/default_device.h"
#include "models/bert.h"
#include "models/resnet.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace rw {

namespace {

using Work = std::function<void()>;

// A step of a model in training, in 16 bits by autocast and with loss scaling.
template <class Model>
struct Training {
  std::unique_ptr<Model> model;
  std::unique_ptr<Accumulate> optimizer;
  std::function<Tensor(Model&)> loss;

  void step(DType dtype) {
    Tensor l;
    {
      const Autocast autocast(dtype, dtype != DType::f32);
      l = loss(*model);
    }
    optimizer->backward(l);
    optimizer->step();
    optimizer->zero_grad();
    default_device()->end_step();
  }
};

template <class Model>
Work trained(std::unique_ptr<Model> model, Optimizer&& rule, uint32_t micro_batches, DType dtype,
             std::function<Tensor(Model&)> loss) {
  rule.set_scaler(default_scaler(dtype));
  const auto training = std::make_shared<Training<Model>>();
  training->model = std::move(model);
  training->optimizer = std::make_unique<Accumulate>(std::move(rule), micro_batches);
  training->loss = std::move(loss);
  return [training, dtype] { training->step(dtype); };
}

Work resnet(const ResNetConfig& config, int64_t batch, int64_t size, DType dtype) {
  auto model = std::make_unique<ResNet>(config);
  SGD sgd(model->parameters(), {.lr = 0.01f, .momentum = 0.9f});
  const Tensor x = standard_values({batch, size, size, 3}),
               y = standard_indices({batch}, config.classes);
  return trained<ResNet>(std::move(model), std::move(sgd), 1, dtype,
                         [=](ResNet& m) { return cross_entropy(m(x), y); });
}

// The heads for 20 masked tokens of each sequence and for the next sentence.
Work bert(const std::string& preset, int64_t batch, int64_t length, DType dtype) {
  const BertConfig config = BertConfig::preset(preset);
  auto model = std::make_unique<BertForPreTraining>(config);
  AdamW adam(model->parameters(), {.lr = 1e-4f});
  const auto vocabulary = static_cast<int32_t>(config.vocab_size);
  const BertInput input{.ids = standard_indices({batch, length}, vocabulary),
                        .token_types = standard_indices({batch, length}, 1)};
  const Tensor positions = standard_indices({20 * batch}, static_cast<int32_t>(batch * length));
  const Tensor targets = standard_indices({20 * batch}, vocabulary),
               next = standard_indices({batch}, 2);
  return trained<BertForPreTraining>(
      std::move(model), std::move(adam), 1, dtype, [=](BertForPreTraining& m) {
        const Tensor hidden = m.forward(input);
        return add(m.token_loss(hidden, positions, targets),
                   cross_entropy(m.next_sentence_logits(hidden), next));
      });
}

Work mlp(int64_t batch, uint32_t micro_batches, DType dtype) {
  auto model = std::make_unique<Mlp>();
  Adam adam(model->parameters());
  const Tensor x = standard_values({batch, 784}), y = standard_indices({batch}, 10);
  return trained<Mlp>(std::move(model), std::move(adam), micro_batches, dtype,
                      [=](Mlp& m) { return cross_entropy(m(x), y); });
}

}  // namespace

std::vector<StandardStep> standard_steps() {
  return {
      {"resnet20-64", [](DType t) { return resnet(resnet_cifar(20), 64, 32, t); }},
      {"resnet50-8", [](DType t) { return resnet(resnet_imagenet(50), 8, 224, t); }},
      {"bert-mini-16x128", [](DType t) { return bert("mini", 16, 128, t); }},
      {"mlp-1", [](DType t) { return mlp(1, 1, t); }},
      {"mlp-1-of-100", [](DType t) { return mlp(1, 100, t); }},
      {"mlp-100", [](DType t) { return mlp(100, 1, t); }},
      {"resnet50-64", [](DType t) { return resnet(resnet_imagenet(50), 64, 224, t); }, true},
      {"bert-base-32x128", [](DType t) { return bert("base", 32, 128, t); }, true},
  };
}

Tensor standard_values(const Shape& shape, DType dtype, bool trained) {
  std::vector<float> host(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<float>(i * 2654435761u % 2048) / 1024 - 1;
  Tensor t = cast(tensor(host, shape), dtype);
  if (trained) t.set_requires_grad();
  return t;
}

Tensor standard_indices(const Shape& shape, int32_t n) {
  std::vector<int32_t> host(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<int32_t>(i * 2654435761u % static_cast<uint32_t>(n));
  return tensor(host, shape);
}

}  // namespace rw
