// Language models at their published shapes, one text of 2048 tokens: trained whole with AdamW, and
// with their matrices frozen in 16 bits, as adapters are trained.
#include "benchmarks/memory/rows.h"
#include "models/decoder.h"
#include "ops/autocast.h"
#include "optim/adam.h"

namespace rw::memory {

namespace {

struct LanguageWorkload {
  const char* preset;
  bool frozen = false;  // only the weights of norms are trained
  int64_t length = 2048;
};

// Activations are f16. Weights that are trained are f32; those of a frozen model are f16.
class LanguageSteps : public TrainingSteps {
 public:
  LanguageSteps(const LanguageWorkload& o, const StepSettings& settings)
      : model_((manual_seed(1), DecoderConfig::preset(o.preset)),
               o.frozen ? DType::f16 : DType::f32) {
    model_.set_checkpoint(settings.checkpoint == "block" ? settings.checkpoint_every : 0);
    std::vector<Tensor> trained;
    for (Tensor p : model_.parameters()) {
      p.set_requires_grad(!o.frozen || p.rank() == 1);
      if (p.requires_grad()) trained.push_back(p);
    }
    adam_.emplace(std::move(trained));
    const PurposeScope scope(Purpose::data);
    ids_ = zeros({1, o.length}, DType::i32);
  }

  void dry_step(const BatchShape&) override {
    Tensor loss;
    {
      const Autocast half(DType::f16);
      loss = model_.loss(ids_, ids_);
    }
    adam_->backward(loss);
    adam_->step();
    adam_->zero_grad();
    default_device()->end_step();
  }

 private:
  Decoder model_;
  std::optional<AdamW> adam_;
  Tensor ids_;
};

Workload language_workload(const LanguageWorkload& o) {
  const DecoderConfig config = DecoderConfig::preset(o.preset);
  return {.about = {.model = o.preset,
                    .depth = config.num_hidden_layers,
                    .scale = config.num_hidden_layers,
                    .batch = 1,
                    .input = fmt::format("{} tokens", o.length),
                    .dtype = DType::f16,
                    .norm = o.frozen ? "matrices frozen" : "all trained",
                    .in_peak = "tokens, parameters, gradients, AdamW's state, activations, "
                               "workspaces"},
          .make = [o](const StepSettings& s) { return std::make_unique<LanguageSteps>(o, s); }};
}

}  // namespace

void language_row(const RowOptions& o, Report& report) {
  for (const char* preset :
       {"smollm2-135m", "smollm2-360m", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-1b", "llama-3.2-1b",
        "qwen3-1.7b", "llama-3.2-3b", "mistral-7b", "llama-3.1-8b"})
    for (const bool frozen : {false, true}) {
      Bench bench("language", language_workload({.preset = preset, .frozen = frozen}), o.profile);
      add(o, report, bench.plain());
      add(o, report, bench.block());
      add(o, report, bench.memory());
    }
}

}  // namespace rw::memory
