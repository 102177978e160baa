// Functions of tensors without a record: the building blocks of ops, of backward and of optimizers.
#pragma once

#include "tensor.h"

namespace rw {

// Returns a new dense tensor whose every element is `value` (rounded to the dtype).
Tensor full(const Shape& shape, float value, DType dtype = DType::f32,
            const std::shared_ptr<Device>& device = default_device());

void fill_(const Tensor& target, float value);               // target dense
void copy_into(const Tensor& source, const Tensor& target);  // converts dtype, any strides
void accumulate(const Tensor& x, const Tensor& target,
                float scale = 1);  // target (f32) += scale * x

Tensor copy_of(const Tensor& x, DType dtype);  // a new tensor, dense row-major
// Returns the same values, dense and row-major; the same handle if nothing changes.
Tensor dense(const Tensor& x);
// Returns the same values in another dtype.
Tensor to_dtype(const Tensor& x, DType dtype);
// Computes c = alpha * a @ b + beta * c for matrices [m, k], [k, n] and [m, n] that are dense or, a
// and b, the transpose of a dense one.
void multiply_into(const Tensor& a, const Tensor& b, const Tensor& c, float alpha = 1,
                   float beta = 0);
// Returns a + b of one shape, in f32 if the dtypes differ. It overwrites an operand that is moved
// in, if that is the last handle.
Tensor sum_of(Tensor a, Tensor b);

// Queues the kernel "binary" or "compare" for row `id` of shaders/elementwise.def; a and b are
// broadcast to y.
void launch_binary(const char* kernel, uint32_t id, const Tensor& a, const Tensor& b,
                   const Tensor& y);

}  // namespace rw
