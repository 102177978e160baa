// Adafactor (Shazeer and Stern 2018): Adam without a momentum and with the second moments of a
// matrix as those of its rows and columns, so that the state is small beside the parameters.
#pragma once

#include "base/optimizer.h"

namespace rw {

// ValueError unless lr, weight_decay and eps2 are >= 0, beta2_decay <= 0, clip > 0 and eps1 >=
// 1e-18 (it is squared).
struct AdafactorOptions {
  float lr = 1e-2f;             // learning rate, the largest one with relative_step
  float beta2_decay = -0.8f;    // update t takes in t^beta2_decay of the new squares
  float eps1 = 1.1920929e-7f;   // least second moment, squared, and least mean of the rows'
  float eps2 = 1e-3f;           // least root mean square of a parameter for its step
  float clip = 1;               // largest root mean square of an update (PyTorch: d)
  float weight_decay = 0;       // decoupled: parameters shrink by lr * weight_decay
  bool relative_step = true;    // the rate falls: min(lr, 1 / sqrt(t))
  bool scale_parameter = true;  // it is a share of the parameter's root mean square
};

// Adafactor with PyTorch's semantics and defaults; the two switches are Hugging Face's. v is the
// second moments; for a parameter of two axes or more it is their estimate from row r and column c
// of the last two axes, v[r] * v[c] / mean(v[rows]). u = g / sqrt(v), w -= rate * u / max(1, rms(u)
// / clip). State, f32: "row_var" and "col_var", or "variance" for parameters of one axis and for
// those whose last axes are longer than 131072. Each parameter takes dispatches of its own.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(std::vector<Tensor> parameters, const AdafactorOptions& options = {});
  explicit Adafactor(std::vector<ParameterGroup> groups, const AdafactorOptions& options = {});
  explicit Adafactor(std::initializer_list<Tensor> parameters, const AdafactorOptions& options = {})
      : Adafactor(std::vector<Tensor>(parameters), options) {}
};

}  // namespace rw
