// The rows of shaders/elementwise.def on blocks of f32.
#pragma once

#include "level.h"

namespace rw::cpu::REWIND_LEVEL {

// y may be one of the operands.
void unary_block(uint32_t op, const float* x, int64_t count, float a, float b, float* y);
void unary_grad_block(uint32_t op, const float* s, const float* dy, int64_t count, float a, float b,
                      float* dx);
void binary_block(uint32_t op, const float* a, const float* b, int64_t count, float* y);
// Tells whether the gradient of a row reads s. Only then is something meaningful bound to it.
bool grad_reads_saved(uint32_t op);

}  // namespace rw::cpu::REWIND_LEVEL
