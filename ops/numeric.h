// Norms and other reductions, tests of values, gated activations.
#pragma once

#include <limits>
#include <optional>

#include "ops.h"

namespace rw {

// Over `axes` (all when empty), which keep the size 1 with `keepdims`. f32 or f16.
// log(sum(exp(x))) without overflow; -inf where all are.
Tensor logsumexp(Tensor x, const Axes& axes = {}, bool keepdims = false);
// (sum |x|^p)^(1/p); p = inf: the largest |x|, 0: how many are not 0. The gradient where the norm
// is 0 is 0. As torch.linalg.vector_norm.
Tensor norm(Tensor x, float p = 2, const Axes& axes = {}, bool keepdims = false);
// sum(a b) / (max(|a|, eps) max(|b|, eps)) along the axis, which goes away; the shapes broadcast.
Tensor cosine_similarity(Tensor a, Tensor b, int axis = 1, float eps = 1e-8f);
// x / max(norm(x), eps) along the axis.
Tensor normalize(Tensor x, float p = 2, int axis = 1, float eps = 1e-12f);

// Whether any, or every, element is not 0: u8 0 or 1. Of any dtype, no gradient. No elements: 0, 1.
Tensor any(Tensor x, const Axes& axes = {}, bool keepdims = false);
Tensor all(Tensor x, const Axes& axes = {}, bool keepdims = false);

// u8 0 or 1, no gradient. Of any dtype: integers are finite.
Tensor isnan(Tensor x);
Tensor isinf(Tensor x);
Tensor isfinite(Tensor x);
// NaN, inf and -inf replaced, by default by 0 and the dtype's largest and smallest; they get no
// gradient.
Tensor nan_to_num(Tensor x, float nan = 0, std::optional<float> inf = {},
                  std::optional<float> negative_inf = {});

// x, or weight * x below 0; weight is one number or one for each place of the last axis (channels;
// PyTorch's axis 1).
Tensor prelu(Tensor x, Tensor weight);
// a * sigmoid(b) of the halves a, b of an axis, whose size is even (Dauphin et al. 2017).
Tensor glu(Tensor x, int axis = -1);
// silu(gate) * x (Shazeer 2020), keeping the two for the gradient and nothing else.
Tensor swiglu(Tensor gate, Tensor x);

}  // namespace rw
