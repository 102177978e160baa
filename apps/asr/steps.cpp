#include "apps/asr/steps.h"

#include <algorithm>

#include "ops/autocast.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"

namespace rw {

std::unique_ptr<Optimizer> SpeechTask::make_optimizer(const StepRanks& ranks) const {
  auto optimizer = ranks.wrap(AdamW(
      ranks.placed(decay_groups(model.parameters(), recipe_.weight_decay)), {.lr = recipe_.lr}));
  optimizer->set_max_norm(1);
  return optimizer;
}

// Computes in f32, and one sound after another, since together they may be larger than all that is
// kept of them.
Tensor SpeechTask::raw_features(const SpeechBatch& batch) {
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

Tensor SpeechTask::features_of(const SpeechBatch& batch) {
  const PurposeScope scope(Purpose::data);
  return cast(raw_features(batch), settings_.dtype);
}

void SpeechTask::fit_features(SpeechLoader& loader, int64_t batches) {
  LogMel::Statistics statistics;
  for (int64_t i = 0; i < std::min(batches, loader.batches()); ++i) {
    const SpeechBatch batch = loader.batch(0, i);
    statistics.add(raw_features(batch), batch.frames);
  }
  model.features.set_statistics(statistics);
  default_device()->end_step();
}

SpeechBatch SpeechTask::batch_of(const BatchShape& shape) const {
  return {.rows = shape.rows_or(settings_.batch),
          .length = shape.length ? shape.length : recipe_.length,
          .width = recipe_.width};
}

Tensor SpeechTask::loss_of(const SpeechBatch& batch, Meter& meter) {
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
  meter.add(loss, weight_of(batch));
  return loss;
}

std::vector<std::vector<int32_t>> SpeechTask::recognise(const SpeechBatch& batch, int beam) {
  const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
  std::vector<int32_t> frames = batch.frames;
  frames.resize(static_cast<size_t>(batch.rows), static_cast<int32_t>(batch.length));
  return model.recognise(features_of(batch), frames, beam);
}

}  // namespace rw
