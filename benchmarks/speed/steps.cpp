#include <memory>

#include "benchmarks/mnist_mlp.h"
#include "benchmarks/speed/cases.h"
#include "rewind/core/memory/default_device.h"
#include "rewind/core/ops/autocast.h"
#include "rewind/core/ops/ops.h"
#include "rewind/nn/models/bert.h"
#include "rewind/nn/models/resnet.h"
#include "rewind/optim/accumulate.h"
#include "rewind/optim/adam.h"
#include "rewind/optim/sgd.h"

namespace rw::speed {

namespace {

// A step of a model that trains: in 16 bits by autocast and with loss scaling.
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
  const Tensor x = values({batch, size, size, 3}), y = indices({batch}, config.classes);
  return trained<ResNet>(std::move(model), std::move(sgd), 1, dtype,
                         [=](ResNet& m) { return cross_entropy(m(x), y); });
}

// The heads for 20 masked tokens of each sequence and for the next sentence.
Work bert(const std::string& preset, int64_t batch, int64_t length, DType dtype) {
  const BertConfig config = BertConfig::preset(preset);
  auto model = std::make_unique<BertForPreTraining>(config);
  AdamW adam(model->parameters(), {.lr = 1e-4f});
  const auto vocabulary = static_cast<int32_t>(config.vocab_size);
  const BertInput input{.ids = indices({batch, length}, vocabulary),
                        .token_types = indices({batch, length}, 1)};
  const Tensor positions = indices({20 * batch}, static_cast<int32_t>(batch * length));
  const Tensor targets = indices({20 * batch}, vocabulary), next = indices({batch}, 2);
  return trained<BertForPreTraining>(
      std::move(model), std::move(adam), 1, dtype, [=](BertForPreTraining& m) {
        const Tensor hidden = m.forward(input);
        return add(m.token_loss(hidden, positions, targets),
                   cross_entropy(m.next_sentence_logits(hidden), next));
      });
}

Work mlp(int64_t batch, uint32_t micro_batches, DType dtype) {
  auto model = mnist_mlp();
  Adam adam(model->parameters());
  const Tensor x = values({batch, 784}), y = indices({batch}, 10);
  return trained<Sequential>(std::move(model), std::move(adam), micro_batches, dtype,
                             [=](Sequential& m) { return cross_entropy(m(x), y); });
}

}  // namespace

std::vector<Case> step_cases() {
  return {
      {"step/resnet20-64", 0, 0, [](DType t) { return resnet(resnet_cifar(20), 64, 32, t); }},
      {"step/resnet50-8", 0, 0, [](DType t) { return resnet(resnet_imagenet(50), 8, 224, t); }},
      {"step/bert-mini-16x128", 0, 0, [](DType t) { return bert("mini", 16, 128, t); }},
      {"step/mlp-1", 0, 0, [](DType t) { return mlp(1, 1, t); }},
      {"step/mlp-1-of-100", 0, 0, [](DType t) { return mlp(1, 100, t); }},
      {"step/mlp-100", 0, 0, [](DType t) { return mlp(100, 1, t); }},
  };
}

}  // namespace rw::speed
