#include "apps/asr/steps.h"

#include <algorithm>

#include "ops/autocast.h"
#include "optim/adam.h"

namespace rw {

SpeechSteps::SpeechSteps(const SpeechRecipe& recipe, const StepSettings& settings)
    : ranks(settings),
      model(recipe.model),
      optimizer(AdamW(ranks.shard(decay_groups(model.parameters(), recipe.weight_decay)),
                      {.lr = recipe.lr}),
                settings.accumulate),
      numerics(recipe.numerics, optimizer, settings.dtype),
      parallel(ranks.share(optimizer)),
      recipe_(recipe),
      settings_(settings) {
  optimizer.set_max_norm(1);
}

// In f32, and one sound after another: together they may be larger than all that is kept of them.
Tensor SpeechSteps::raw_features(const SpeechBatch& batch) {
  const PurposeScope scope(Purpose::data);
  const NoGrad guard;
  const int64_t samples = model.features.samples(batch.length);
  const std::span<const float> all = batch.samples;
  TensorList rows;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto size = static_cast<size_t>(all.empty() ? 0 : samples);
    rows.push_back(model.features(
        batch_tensor(all.subspan(static_cast<size_t>(row) * size, size), {1, samples})));
  }
  return concat(std::move(rows), 0);
}

Tensor SpeechSteps::features_of(const SpeechBatch& batch) {
  const PurposeScope scope(Purpose::data);
  return cast(raw_features(batch), settings_.dtype);
}

void SpeechSteps::fit_features(SpeechLoader& loader, int64_t batches) {
  LogMel::Statistics statistics;
  for (int64_t i = 0; i < std::min(batches, loader.batches()); ++i) {
    const SpeechBatch batch = loader.batch(0, i);
    statistics.add(raw_features(batch), batch.frames);
  }
  model.features.set_statistics(statistics);
  default_device()->end_step();
}

SpeechBatch SpeechSteps::batch_of(const BatchShape& shape) const {
  return {.rows = shape.rows_or(settings_.batch),
          .length = shape.length ? shape.length : recipe_.length,
          .width = recipe_.width};
}

// The tensors of a step die with their scope, so that all of its memory is the plan's to place.
void SpeechSteps::step(const SpeechBatch& batch) {
  optimizer.backward(loss_of(batch), static_cast<float>(batch.rows));
  optimizer.step();
  optimizer.zero_grad();
  default_device()->end_step();
}

Tensor SpeechSteps::loss_of(const SpeechBatch& batch) {
  Tensor x = features_of(batch), frames, labels, counts, loss;
  {
    const PurposeScope scope(Purpose::data);
    frames = batch_tensor(batch.frames, {batch.rows});
    labels = batch_tensor(batch.labels, {batch.rows, batch.width});
    counts = batch_tensor(batch.label_counts, {batch.rows});
  }
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    loss = model.loss(std::move(x), frames, labels, counts);
  }
  meter.add(loss, static_cast<double>(batch.rows));
  return loss;
}

std::vector<std::vector<int32_t>> SpeechSteps::recognise(const SpeechBatch& batch, int beam) {
  std::vector<std::vector<int32_t>> labels;
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    std::vector<int32_t> frames = batch.frames;
    frames.resize(static_cast<size_t>(batch.rows), static_cast<int32_t>(batch.length));
    labels = model.recognise(features_of(batch), frames, beam);
  }
  default_device()->end_step();
  return labels;
}

}  // namespace rw
