// Norms and other reductions, tests of values, and gated activations.
#pragma once

#include <limits>
#include <optional>

#include "ops.h"

namespace rw {

// Over `axes` (all when empty), which keep the size 1 with `keepdims`. f32 or f16.
//! op: logsumexp   autocast: f32
// log(sum(exp(x))) without overflow; -inf where all are.
Tensor logsumexp(Tensor x, const Axes& axes = {}, bool keepdims = false);
//! op: norm   torch: linalg.vector_norm   autocast: f32
// (sum |x|^p)^(1/p); p = inf gives the largest |x|, and 0 the number of nonzero elements. The
// gradient is 0 if the norm is 0. As torch.linalg.vector_norm.
Tensor norm(Tensor x, float p = 2, const Axes& axes = {}, bool keepdims = false);
//! op: cosine_similarity   autocast: f32
// sum(a b) / (max(|a|, eps) max(|b|, eps)) along the axis, which is removed; the shapes broadcast.
Tensor cosine_similarity(Tensor a, Tensor b, int axis = 1, float eps = 1e-8f);
//! op: normalize
// x / max(norm(x), eps) along the axis.
Tensor normalize(Tensor x, float p = 2, int axis = 1, float eps = 1e-12f);

//! op: any all   in: any   order: 0
// Whether any, or every, element is nonzero: u8 0 or 1. Takes any dtype and gives no gradient.
// Without elements they are 0 and 1.
Tensor any(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor all(Tensor x, const Axes& axes = {}, bool keepdims = false);

// Tests of each element: u8 0 or 1, without a gradient. They take any dtype; integers are finite.
//! op: isnan   in: any   order: 0   try: isnan(trunc(constant({5, 1})) / trunc(constant({6})))
inline Tensor isnan(Tensor x) {
  return not_equal(x, x);
}
//! op: isinf isfinite   in: any   order: 0
Tensor isinf(Tensor x);
Tensor isfinite(Tensor x);
//! op: nan_to_num
// Replaces NaN, inf and -inf, by default by 0 and the largest and smallest value of the dtype;
// replaced elements get no gradient.
Tensor nan_to_num(Tensor x, float nan = 0, std::optional<float> inf = {},
                  std::optional<float> negative_inf = {});

//! op: prelu   autocast: low
// x, or weight * x below 0; weight is one number, or one for each place of the last axis (the
// channels; PyTorch's axis 1).
Tensor prelu(Tensor x, Tensor weight);
//! op: glu
// a * sigmoid(b) for the halves a, b of an axis of even size (Dauphin et al. 2017).
Tensor glu(Tensor x, int axis = -1);
//! op: swiglu geglu   torch: none
// silu(gate) * x and gelu_tanh(gate) * x (Shazeer 2020), for a gate and x of one shape. The
// gradient keeps only these two, and makes one of its two results in their memory.
Tensor swiglu(Tensor gate, Tensor x);
Tensor geglu(Tensor gate, Tensor x);

}  // namespace rw
