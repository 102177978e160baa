#include "apps/resnet/steps.h"

#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"
#include "optim/sgd.h"

namespace rw {

namespace {

// Weight decay is for convolutions and the last layer, not for norms and biases.
std::vector<ParameterGroup> parameter_groups(const ResNet& model) {
  ParameterGroup decayed, plain{.weight_decay = 0};
  for (const Tensor& p : model.parameters())
    (p.rank() > 1 ? decayed : plain).parameters.push_back(p);
  return {decayed, plain};
}

// Returns `rows` rows of a batch's values from row `first` on, `each` values per row; without a
// batch, no values.
template <class T>
std::span<const T> rows_of(const std::vector<T>& values, int64_t first, int64_t rows,
                           int64_t each) {
  if (values.empty()) return {};
  return std::span(values).subspan(static_cast<size_t>(first * each),
                                   static_cast<size_t>(rows * each));
}

}  // namespace

Tensor upload_images(const Batch& batch, int64_t first, int64_t rows, const ResNetRecipe& recipe,
                     DType dtype) {
  const PurposeScope scope(Purpose::data);
  const int64_t each = recipe.height * recipe.width * 3;
  return cast(batch_tensor(rows_of(batch.pixels, first, rows, each),
                           {rows, recipe.height, recipe.width, 3}),
              dtype);
}

ResNetTask::ResNetTask(const ResNetRecipe& recipe, const StepSettings& settings)
    : model(recipe.model), recipe_(recipe), settings_(settings) {
  model.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
  model.set_stage_checkpoint(settings.checkpoint == "stage" ? settings.checkpoint_every : 0);
}

std::unique_ptr<Optimizer> ResNetTask::make_optimizer(const StepRanks& ranks) const {
  SGD sgd(
      ranks.placed(parameter_groups(model)),
      {.lr = recipe_.lr, .momentum = 0.9f, .weight_decay = recipe_.weight_decay, .nesterov = true});
  if (recipe_.parts <= 1) return ranks.wrap(std::move(sgd));
  check(settings_.fused_update == 0, "options",
        "parts that run side by side add up their gradients, so --fused-update must be 0, got {}",
        settings_.fused_update);
  return std::make_unique<Accumulate>(std::move(sgd), recipe_.parts);
}

// The parts are as equal as possible.
bool ResNetTask::train_on(const Batch& batch, Optimizer& optimizer, Meter& meter) {
  if (recipe_.parts <= 1) return false;
  const auto forward = [&](uint32_t part) { return part_of(batch, part, meter); };
  dynamic_cast<Accumulate&>(optimizer).run_together(forward, parts_of(batch));
  optimizer.zero_grad();
  return true;
}

void ResNetTask::evaluate_on(const Batch& batch, Meter& meter) {
  for (uint32_t part = 0; part < parts_of(batch); ++part) part_of(batch, part, meter);
}

MicroBatch ResNetTask::part_of(const Batch& batch, uint32_t part, Meter& meter) {
  const auto begin = [&](int64_t i) { return batch.size() * i / parts_of(batch); };
  const int64_t rows = begin(part + 1) - begin(part);
  return {loss_of(batch, begin(part), rows, meter), static_cast<float>(rows)};
}

Tensor ResNetTask::loss_of(const Batch& batch, int64_t first, int64_t rows, Meter& meter) {
  Tensor images, labels, logits, loss;
  {
    const PurposeScope scope(Purpose::data);
    images = upload_images(batch, first, rows, recipe_, settings_.dtype);
    labels = batch_tensor(rows_of(batch.labels, first, rows, 1), {rows});
  }
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    logits = model(images);
    loss = cross_entropy(logits, labels);
  }
  meter.add(loss, argmax(logits), labels);
  return loss;
}

}  // namespace rw
