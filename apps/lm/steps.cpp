#include "apps/lm/steps.h"

#include "nn/init.h"
#include "ops/autocast.h"

namespace rw {

namespace {

// Files that come next spare its parameters their first values.
Decoder decoder_of(const LmRecipe& recipe) {
  const init::SkipInit loaded_next(recipe.is_loaded);
  return Decoder(recipe.config);
}

}  // namespace

LmTask::LmTask(const LmRecipe& recipe, const StepSettings& settings)
    : model(decoder_of(recipe)), recipe_(recipe), settings_(settings) {
  check(settings.checkpoint != "stage", "options",
        "language models have no stages, use blocks: their layers");
  model.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
  model.set_mlp_rows(settings.mlp_rows);
}

std::unique_ptr<Optimizer> LmTask::make_optimizer(const StepRanks& ranks) const {
  return recipe_.update.make(model, ranks);
}

TokenBatch LmTask::batch_of(const BatchShape& shape) const {
  return {.rows = shape.rows_or(settings_.batch), .length = settings_.length_or(recipe_.length)};
}

Tensor LmTask::loss_of(const TokenBatch& batch, Meter& meter) {
  const Shape shape = {batch.rows, batch.length};
  Tensor ids, targets, loss;
  {
    const PurposeScope scope(Purpose::data);
    ids = batch_tensor(batch.ids, shape);
    targets = batch_tensor(batch.targets, shape);
  }
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    loss = model.loss(std::move(ids), targets);
  }
  meter.add(loss, static_cast<double>(shape.numel()));
  return loss;
}

}  // namespace rw
