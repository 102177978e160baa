#include "apps/mnist/steps.h"

#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"

namespace rw {

namespace {

Tensor upload_pixels(const Batch& batch) {
  const PurposeScope scope(Purpose::data);
  return batch_tensor(batch.pixels, {batch.size(), 784});
}
Tensor upload_labels(const Batch& batch) {
  const PurposeScope scope(Purpose::data);
  return batch_tensor(batch.labels, {batch.size()});
}

}  // namespace

MnistTask::MnistTask(const Recipe&, const StepSettings& settings) : settings_(settings) {
  model.set_checkpoint(settings.checkpoint == "none" ? 0 : 1);
}

std::unique_ptr<Optimizer> MnistTask::make_optimizer(const StepRanks& ranks) const {
  return ranks.wrap(Adam(ranks.placed(model.parameters())));
}

Tensor MnistTask::loss_of(const Batch& batch, Meter& meter) {
  Tensor pixels = upload_pixels(batch), loss;
  const Tensor labels = upload_labels(batch);
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    loss = cross_entropy(model(std::move(pixels)), labels);
  }
  meter.add(loss, weight_of(batch));
  return loss;
}

// Evaluates in f32.
void MnistTask::evaluate_on(const Batch& batch, Meter& meter) {
  const Tensor labels = upload_labels(batch);
  const Tensor logits = model(upload_pixels(batch));
  meter.add(cross_entropy(logits, labels), argmax(logits), labels);
}

}  // namespace rw
