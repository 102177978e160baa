#include "apps/lora/steps.h"

#include "core/memory/default_device.h"
#include "ops/autocast.h"

namespace rw {

namespace {

// The model whose weights stay, in the dtype that it computes in. A dry run reads no file. This is
// the one place where a base is loaded.
std::unique_ptr<Decoder> base_of(const LoraRecipe& recipe, const StepSettings& settings) {
  std::unique_ptr<Decoder> base =
      make_decoder(recipe.config, recipe.types, settings.dtype, settings.offload == "file");
  if (!default_device()->backend().is_dry()) recipe.base->load(*base);
  return base;
}

}  // namespace

LoraTask::LoraTask(const LoraRecipe& recipe, const StepSettings& settings)
    : base_(base_of(recipe, settings)), model(*base_), recipe_(recipe), settings_(settings) {
  check(settings.checkpoint != "stage", "options",
        "language models have no stages, use blocks: their layers");
  if (settings.offload == "file")
    frozen_ = std::make_unique<FrozenWeights>(matrices_in_file(recipe.base.get(), model));
  add_lora(model, recipe.adapter);
  if (settings.offloads_parameters()) frozen_ = std::make_unique<FrozenWeights>(model);
  model.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
  model.set_mlp_rows(settings.mlp_rows);
}

std::unique_ptr<Optimizer> LoraTask::make_optimizer(const StepRanks& ranks) const {
  return recipe_.update.make(model, ranks);
}

InstructionBatch LoraTask::batch_of(const BatchShape& shape) const {
  return {.rows = shape.rows_or(settings_.batch), .length = settings_.length_or(recipe_.length)};
}

FileReads LoraTask::reads() const {
  const FileSource* file = frozen_ ? frozen_->file() : nullptr;
  return file ? FileReads{file->bytes_read(), file->buffer_bytes()} : FileReads{};
}

double LoraTask::weight_of(const InstructionBatch& batch) const {
  return static_cast<double>(batch.ids.empty() ? batch.rows * batch.length : batch.counted);
}

Tensor LoraTask::loss_of(const InstructionBatch& batch, Meter& meter) {
  const Shape shape = {batch.rows, batch.length};
  if (frozen_) frozen_->begin_step();
  Tensor ids, targets, starts, loss;
  {
    const PurposeScope scope(Purpose::data);
    ids = batch_tensor(batch.ids, shape);
    targets = batch_tensor(batch.targets, shape);
    starts = batch_tensor(batch.starts, shape);
  }
  {
    const Autocast autocast(settings_.dtype, settings_.dtype != DType::f32);
    loss = model.loss(std::move(ids), targets, starts);
  }
  meter.add(loss, weight_of(batch));
  return loss;
}

}  // namespace rw
