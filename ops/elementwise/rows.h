// Elementwise ops of tensors only, one for each row of shaders/elementwise.def, of which
// `ops/list/op_list.py write` makes this file.
#pragma once

#include "../../core/tensor/tensor.h"

namespace rw {

// y[i] = f(x[i]), with PyTorch's names; sign, floor and ceil have gradients of 0. For i32 and u8,
// neg, abs, square, sign, relu, clamp, floor, ceil, round and trunc give i32, and the others f32.
Tensor neg(Tensor x);
Tensor abs(Tensor x);
Tensor exp(Tensor x);
Tensor log(Tensor x);
Tensor sqrt(Tensor x);
Tensor rsqrt(Tensor x);   // 1 / sqrt(x)
Tensor square(Tensor x);  // x * x
Tensor relu(Tensor x);
Tensor sigmoid(Tensor x);  // 1 / (1 + exp(-x))
Tensor tanh(Tensor x);
Tensor silu(Tensor x);       // x * sigmoid(x)
Tensor gelu(Tensor x);       // erf form
Tensor gelu_tanh(Tensor x);  // tanh approximation
Tensor softplus(Tensor x);   // log(1 + exp(x)), without overflow
Tensor sin(Tensor x);
Tensor cos(Tensor x);
Tensor erf(Tensor x);
Tensor reciprocal(Tensor x);  // 1 / x
Tensor sign(Tensor x);        // -1, 0 or 1
Tensor floor(Tensor x);
Tensor ceil(Tensor x);
Tensor hardtanh(Tensor x);  // clamp(x, -1, 1)
Tensor log1p(Tensor x);     // log(1 + x)
Tensor expm1(Tensor x);     // exp(x) - 1, exact near 0, too
Tensor tan(Tensor x);
Tensor round(Tensor x);        // to even halfway between two; gradient 0
Tensor trunc(Tensor x);        // toward zero; gradient 0
Tensor erfinv(Tensor x);       // of [-1, 1] (Giles 2010)
Tensor softsign(Tensor x);     // x / (1 + |x|)
Tensor hardsigmoid(Tensor x);  // clamp(x / 6 + 1/2, 0, 1)
Tensor hardswish(Tensor x);    // x * hardsigmoid(x) (Howard et al. 2019)
Tensor mish(Tensor x);         // x * tanh(softplus(x)) (Misra 2019)
Tensor selu(Tensor x);         // Klambauer et al. 2017
Tensor log_sigmoid(Tensor x);  // log(sigmoid(x)), without overflow

// Functions of two tensors, broadcast, and promoted (promote() of ops.h) if their dtypes differ. u8
// counts as i32.
Tensor add(Tensor a, Tensor b);
Tensor sub(Tensor a, Tensor b);
Tensor mul(Tensor a, Tensor b);
Tensor div(Tensor a, Tensor b);  // i32: truncated toward zero
Tensor maximum(Tensor a, Tensor b);
Tensor minimum(Tensor a, Tensor b);

// a^b: NaN if a is negative and b is not an integer. i32 wraps around; a negative power of anything
// but 1 and -1 is 0.
Tensor pow(Tensor a, Tensor b);

// fmod is a - b trunc(a / b), with the sign of a; remainder is a - b floor(a / b), with that of b.
// Division by 0 gives NaN, for i32 0.
Tensor fmod(Tensor a, Tensor b);
Tensor remainder(Tensor a, Tensor b);

// log(exp(a) + exp(b)), without overflow. DTypeError without a float.
Tensor logaddexp(Tensor a, Tensor b);

// Comparisons of two tensors of any dtype, broadcast. They give u8 0 or 1 and no gradient.
Tensor equal(Tensor a, Tensor b);
Tensor not_equal(Tensor a, Tensor b);
Tensor less(Tensor a, Tensor b);
Tensor less_equal(Tensor a, Tensor b);
Tensor greater(Tensor a, Tensor b);
Tensor greater_equal(Tensor a, Tensor b);

// Logical operations: everything but 0 is true, including NaN.
Tensor logical_and(Tensor a, Tensor b);
Tensor logical_or(Tensor a, Tensor b);
Tensor logical_xor(Tensor a, Tensor b);

}  // namespace rw
