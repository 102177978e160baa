// Muon (Jordan et al. 2024): for the matrices of hidden layers, a momentum whose singular values
// are all brought to about 1.
#pragma once

#include <array>

#include "adam.h"
#include "base/optimizer.h"

namespace rw {

// How the learning rate depends on a matrix of A rows and B columns: original multiplies it by
// sqrt(max(1, A / B)); match_rms_adamw by 0.2 * sqrt(max(A, B)), so that AdamW's rates suit it (Liu
// et al. 2025).
enum class MuonRate { original, match_rms_adamw };

// PyTorch's names and defaults. ValueError unless lr is > 0, weight_decay >= 0, momentum in [0, 1),
// eps > 0 and 1 <= ns_steps < 100.
struct MuonOptions {
  float lr = 1e-3f;           // learning rate
  float weight_decay = 0.1f;  // decoupled: parameters shrink by lr * weight_decay
  float momentum = 0.95f;     // the share of the mean gradient that remains per update
  bool nesterov = true;       // looks ahead by one update
  std::array<float, 3> ns_coefficients = {3.4445f, -4.7750f, 2.0315f};  // of the iteration
  float eps = 1e-7f;                                                    // least norm divided by
  int ns_steps = 5;                                                     // iterations
  MuonRate adjust_lr = MuonRate::original;  // how the rate follows the shape
};

// With m = momentum * m + (1 - momentum) * g: u, (1 - momentum) * g + momentum * m where nesterov,
// is divided by its norm, then ns_steps times u = a * u + (b * u u^T + c * (u u^T)^2) u, in f32
// (PyTorch: bf16); w -= rate * u. Parameters of more than two axes count as matrices of what
// follows the first, as convolutions do in the paper's code; those of fewer are a ShapeError.
// State: m, f32, "momentum_buffer". Each matrix takes dispatches and about three times its memory
// of its own.
//
// Embeddings, heads, biases and normalisation belong to AdamW, with rates of their own: `others`.
// One loss scale, norm, schedule and count of updates is theirs together; set_learning_rate()
// changes AdamW's rate in proportion. State as of AdamW.
class Muon : public Optimizer {
 public:
  explicit Muon(std::vector<Tensor> matrices, const MuonOptions& options = {},
                std::vector<Tensor> others = {}, const AdamWOptions& adamw = {});
  explicit Muon(std::vector<ParameterGroup> matrices, const MuonOptions& options = {},
                std::vector<ParameterGroup> others = {}, const AdamWOptions& adamw = {});
  explicit Muon(std::initializer_list<Tensor> matrices, const MuonOptions& options = {},
                std::vector<Tensor> others = {}, const AdamWOptions& adamw = {})
      : Muon(std::vector<Tensor>(matrices), options, std::move(others), adamw) {}
};

}  // namespace rw
