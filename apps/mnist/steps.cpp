#include "apps/mnist/steps.h"

#include "ops/autocast.h"
#include "ops/ops.h"
#include "optim/adam.h"

namespace rw {

namespace {

Tensor upload_pixels(const Batch& batch, int64_t rows) {
  const PurposeScope scope(Purpose::data);
  return batch_tensor(batch.pixels, {rows, 784});
}
Tensor upload_labels(const Batch& batch, int64_t rows) {
  const PurposeScope scope(Purpose::data);
  return batch_tensor(batch.labels, {rows});
}

}  // namespace

Tensor Mlp::forward(Tensor x) {
  const bool segments = checkpoint_ && is_training();
  for (Linear* hidden : {&hidden1_, &hidden2_}) {
    const CheckpointScope scope(segments);
    x = dropout_(relu((*hidden)(std::move(x))));
  }
  return output_(std::move(x));
}

MnistSteps::MnistSteps(const StepSettings& settings, const NumericsOptions& numerics,
                       const AverageOptions& average)
    : ranks(settings),
      optimizer(Adam(ranks.shard(model.parameters())), settings.accumulate),
      numerics(numerics, optimizer, settings.dtype),
      average(average.follow(optimizer)),
      parallel(ranks.share(optimizer)),
      settings_(settings) {
  model.set_checkpoint(settings.checkpoint != "none");
}

// The tensors of a step die with their scope, so that all of its memory is the plan's to place.
void MnistSteps::step(const Batch& batch, int64_t rows) {
  optimizer.backward(train_loss(batch, rows), static_cast<float>(rows));
  optimizer.step();
  optimizer.zero_grad();
  default_device()->end_step();
}

Tensor MnistSteps::train_loss(const Batch& batch, int64_t rows) {
  Tensor pixels = upload_pixels(batch, rows), loss;
  const Tensor labels = upload_labels(batch, rows);
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    loss = cross_entropy(model(std::move(pixels)), labels);
  }
  meter.add(loss, static_cast<double>(rows));
  return loss;
}

void MnistSteps::evaluate(const Batch& batch, int64_t rows) {
  measure(batch, rows);
  default_device()->end_step();
}

void MnistSteps::measure(const Batch& batch, int64_t rows) {
  const Tensor labels = upload_labels(batch, rows);
  const Tensor logits = model(upload_pixels(batch, rows));
  meter.add(cross_entropy(logits, labels), argmax(logits), labels);
}

}  // namespace rw
