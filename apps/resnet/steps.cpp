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

// Uploads images of a batch; without a batch, allocates memory for so many.
Tensor upload_images(const Batch& batch, int64_t first, int64_t rows, const ResNetRecipe& recipe,
                     DType dtype) {
  const PurposeScope scope(Purpose::data);
  const int64_t each = recipe.height * recipe.width * 3;
  return cast(batch_tensor(rows_of(batch.pixels, first, rows, each),
                           {rows, recipe.height, recipe.width, 3}),
              dtype);
}

CheckpointMode checkpoint_mode(const std::string& name) {
  if (name == "block") return CheckpointMode::block;
  return name == "stage" ? CheckpointMode::stage : CheckpointMode::none;
}

}  // namespace

ResNetTask::ResNetTask(const ResNetRecipe& recipe, const StepSettings& settings)
    : model(recipe.model), recipe_(recipe), settings_(settings) {
  model.set_checkpoint(checkpoint_mode(settings.checkpoint), settings.checkpoint_every);
}

std::unique_ptr<Optimizer> ResNetTask::make_optimizer(const StepRanks& ranks) const {
  return std::make_unique<Accumulate>(
      SGD(ranks.shard(parameter_groups(model)), {.lr = recipe_.lr,
                                                 .momentum = 0.9f,
                                                 .weight_decay = recipe_.weight_decay,
                                                 .nesterov = true}),
      recipe_.parts > 1 ? recipe_.parts : settings_.accumulate);
}

ResNetTask::DeviceBatch ResNetTask::upload(const Batch& batch, int64_t first, int64_t rows) const {
  const PurposeScope scope(Purpose::data);
  return {upload_images(batch, first, rows, recipe_, settings_.dtype),
          batch_tensor(rows_of(batch.labels, first, rows, 1), {rows})};
}

// The parts are as equal as possible.
bool ResNetTask::train_on(const Batch& batch, Optimizer& optimizer, Meter& meter) {
  if (recipe_.parts <= 1) return false;
  const auto forward = [&](uint32_t part) {
    const DeviceBatch own = upload_part(batch, part);
    return MicroBatch{loss_of(own, meter), static_cast<float>(own.labels.size(0))};
  };
  dynamic_cast<Accumulate&>(optimizer).run_together(forward, parts_of(batch));
  optimizer.zero_grad();
  return true;
}

void ResNetTask::evaluate_on(const Batch& batch, Meter& meter) {
  for (uint32_t part = 0; part < parts_of(batch); ++part) loss_of(upload_part(batch, part), meter);
}

ResNetTask::DeviceBatch ResNetTask::upload_part(const Batch& batch, uint32_t part) const {
  const auto begin = [&](int64_t i) { return batch.size() * i / parts_of(batch); };
  return upload(batch, begin(part), begin(part + 1) - begin(part));
}

Tensor ResNetTask::loss_of(const DeviceBatch& batch, Meter& meter) {
  Tensor logits, loss;
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    logits = model(batch.images);
    loss = cross_entropy(logits, batch.labels);
  }
  meter.add(loss, argmax(logits), batch.labels);
  return loss;
}

PredictSteps::PredictSteps(const ResNetRecipe& recipe, const StepSettings& settings)
    : model(recipe.model), recipe_(recipe), settings_(settings) {}

std::vector<float> PredictSteps::scores(const Batch& batch) {
  std::vector<float> scores;
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    scores = model(upload_images(batch, 0, batch.size(), recipe_, settings_.dtype)).to_vector();
  }
  default_device()->end_step();
  return scores;
}

}  // namespace rw
