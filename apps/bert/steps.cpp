#include "apps/bert/steps.h"

#include <algorithm>
#include <cmath>

#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "ops/ops.h"

namespace rw {

BertInput device_input(const TextBatch& batch) {
  const PurposeScope scope(Purpose::data);
  return {.ids = batch_tensor(batch.ids, {batch.rows, batch.length}),
          .token_types = batch_tensor(batch.token_types, {batch.rows, batch.length}),
          .lengths = batch_tensor(batch.lengths, {batch.rows})};
}

namespace {

void set_segments(BertModel& bert, const StepSettings& settings) {
  check(settings.checkpoint != "stage", "options", "BERT has no stages, use blocks: its layers");
  bert.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
}

// The tokens to predict and their positions among the batch's. Spare positions have the target
// -100, which losses ignore.
struct Targets {
  Tensor positions, tokens;

  Targets(const TextBatch& batch, int64_t places) {
    std::vector<int32_t> at, token;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] < 0) continue;
      at.push_back(static_cast<int32_t>(i));
      token.push_back(batch.targets[i]);
    }
    const auto count = static_cast<size_t>(places);
    check(at.size() <= count, "targets", "there are places for {} tokens, got {}", count,
          at.size());
    if (!batch.targets.empty()) {
      at.resize(count, 0);
      token.resize(count, -100);
    }
    const PurposeScope scope(Purpose::data);
    positions = batch_tensor(at, {places});
    tokens = batch_tensor(token, {places});
  }
};

}  // namespace

int64_t BertRecipe::predictions() const {
  const auto wanted = std::llround(static_cast<double>(length) * masking.probability);
  const int64_t most = std::max<int64_t>(1, wanted);
  return masking.max_predictions > 0 ? std::min(most, masking.max_predictions) : most;
}

PretrainTask::PretrainTask(const BertRecipe& recipe, const StepSettings& settings)
    : model(recipe.config, false), recipe_(recipe), settings_(settings) {
  set_segments(model.bert, settings);
}

std::unique_ptr<Optimizer> PretrainTask::make_optimizer(const StepRanks& ranks) const {
  return recipe_.update.make(model, ranks);
}

TextBatch PretrainTask::batch_of(const BatchShape& shape) const {
  const int64_t rows = shape.rows_or(settings_.batch);
  return {.rows = rows, .length = recipe_.length, .predictions = rows * recipe_.predictions()};
}

Tensor PretrainTask::loss_of(const TextBatch& batch, Meter& meter) {
  const Targets targets(batch, batch.rows * recipe_.predictions());
  Tensor loss, predicted;
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    const Tensor hidden = model.forward(device_input(batch));
    loss = model.token_loss(hidden, targets.positions, targets.tokens, &predicted);
  }
  meter.add(loss, predicted, targets.tokens, static_cast<double>(batch.predictions));
  return loss;
}

FinetuneTask::FinetuneTask(const BertRecipe& recipe, const StepSettings& settings)
    : model(recipe.config, recipe.classes), recipe_(recipe), settings_(settings) {
  set_segments(model.bert, settings);
}

std::unique_ptr<Optimizer> FinetuneTask::make_optimizer(const StepRanks& ranks) const {
  return recipe_.update.make(model, ranks);
}

TextBatch FinetuneTask::batch_of(const BatchShape& shape) const {
  return {.rows = shape.rows_or(settings_.batch),
          .length = shape.length ? shape.length : recipe_.length};
}

Tensor FinetuneTask::loss_of(const TextBatch& batch, Meter& meter) {
  Tensor logits, labels, loss;
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    logits = model.forward(device_input(batch));
    labels = batch_tensor(batch.labels, {batch.rows});  // not the first argument: steps are
                                                        // recognised by their beginning
    loss = cross_entropy(logits, labels);
  }
  meter.add(loss, argmax(logits), labels);
  return loss;
}

}  // namespace rw
