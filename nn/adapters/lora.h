// Low-rank adapters around frozen linear layers: LoRA (Hu et al. 2021), its rank-stabilised scale
// (Kalajdzievski 2023) and DoRA (Liu et al. 2024), as Hugging Face's PEFT computes them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../layers.h"

namespace rw {

// The settings of adapters, with PEFT's meanings.
struct LoraOptions {
  int64_t rank = 16;             // rows of A and columns of B
  double alpha = 32;             // the product of A and B counts alpha / rank
  float dropout = 0;             // of the adapter's input, in training
  bool rank_stabilized = false;  // it counts alpha / sqrt(rank) (rsLoRA)
  bool dora = false;  // trains the lengths of the weight's rows apart from their directions
  // The layers that get an adapter: those whose dotted name is one of these or ends with a dot and
  // one of these, as "q_proj". Empty: all linear layers but a model's head, which is one that is
  // called lm_head, head, classifier, score or fc.
  std::vector<std::string> target_modules = {};
  // The ranks and alphas of layers that have others: the first name that is a layer's, or ends it
  // behind a dot, counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};

  double scale() const;  // of the product
  // The same with the rank and alpha of the layer with this dotted name, and without patterns.
  LoraOptions of_layer(const std::string& name) const;
  // ValueError unless ranks and alphas are positive and dropout is in [0, 1).
  void check() const;
};

//! torch: none
// A linear layer with an adapter, in the layer's slot (Linear::substitute): base(x) + scale B A x,
// where the base is what was in the slot before, the layer's weight or a substitute in another
// form, and does not change. A substitute adds the layer's bias, if it has one. With DoRA, row i of
// the sum W + scale B A, without the bias, is multiplied by magnitude[i] / |row i|, whose divisor
// is a constant for gradients.
//
// A starts uniform within 1 / sqrt(in) and B at 0, so the output is the base's at first; both are
// f32 and computed with in the dtype of x, or in that of Autocast. Parameters lora_A.weight,
// lora_B.weight and lora_magnitude_vector stand beside those of the layer. Layers have adapters by
// add_lora().
class Lora : public Module {
 public:
  Tensor forward(Tensor x) override;

  const LoraOptions& options() const { return options_; }  // of this layer
  Linear& layer() const { return layer_; }                 // in whose slot it stands
  const Module* base() const { return base_.get(); }       // null: the layer's weight
  // W + scale B A, with DoRA's lengths, as f32 [out, in]. ValueError unless the base is the layer's
  // weight.
  Tensor merged_weight() const;

  Tensor A, B;       // [rank, in], [out, rank]
  Tensor magnitude;  // [out], or undefined: no DoRA

  // Puts an adapter into the layer's slot, around what is there. ValueError as LoraOptions::check()
  // and if that is an adapter.
  static Lora& add_to(Linear& layer, const LoraOptions& options);
  // Puts the base of the layer's adapter into its slot again. The adapter's memory goes with the
  // last handles on its parameters.
  static void remove_from(Linear& layer);

 private:
  Lora(Linear& layer, const LoraOptions& options);

  Tensor product(Tensor x) const;  // the base without its bias
  Tensor low_rank(const Tensor& x) const;
  Tensor with_lengths(Tensor x);
  Tensor row_squares(DType dtype) const;
  Tensor row_lengths(DType dtype) const;

  LoraOptions options_;
  Linear& layer_;
  std::unique_ptr<Module> base_;
  Dropout dropout_;
  // |row|^2 of the base's weight, [out] f32, and the contents of which it is.
  mutable std::mutex squares_mutex_;
  mutable Tensor squares_;
  mutable std::pair<const void*, uint32_t> squares_of_ = {};
};

// Whether a name in target_modules or a pattern is that of the layer with this dotted name.
bool names_layer(const std::string& target, const std::string& layer);
// A linear layer of a model, by its dotted name.
struct NamedLinear {
  std::string name;
  Linear* layer;
};
// An adapter, by the name of the layer that has it.
struct NamedLora {
  std::string name;
  Lora* adapter;
};

std::vector<NamedLinear> linear_layers(const Module& model);  // all, in the model's order
// The layers that get an adapter by LoraOptions::target_modules, in the model's order.
std::vector<NamedLinear> lora_targets(const Module& model,
                                      const std::vector<std::string>& target_modules);
// Freezes all parameters of the model (requires_grad_(false)) and gives each target layer an
// adapter, whose parameters alone are trained from then on. Optimizers are made afterwards.
// ValueError before anything changes: for options, for a target that no layer's name ends with, if
// no layer is a target, and if the model has adapters.
std::vector<NamedLora> add_lora(Module& model, const LoraOptions& options = {});
// The adapters of a model, in its order.
std::vector<NamedLora> lora_adapters(const Module& model);
// Adds the adapters into the weights, which keep their dtype, and removes them. The weights stay
// frozen. ValueError before anything changes, if an adapter stands around a weight in another form,
// as a quantised one, or if there are none.
void merge_lora(Module& model);
// Removes the adapters; the model computes what it did before they were added.
void remove_lora(Module& model);

}  // namespace rw
