// Adafactor: the update of an element before clipping. Both kernels compute it from the same values, so it needs no
// memory.
#include "optim/adafactor.glsl"
#include "common/reduce.glsl"
#include "optim/squares.glsl"
layout(constant_id = 0) const bool FACTORED = false;

// Returns the direction of element i, given the estimate v of its squared gradient.
float direction(float g, float v) { return g * inversesqrt(max(v, p.eps1 * p.eps1)); }

float factored_estimate(uint i) {
  uint row = i / p.cols, matrix = row / p.rows, col = i - row * p.cols;
  return load_row_var(row) / max(load_mean(matrix), p.eps1) * load_col_var(matrix * p.cols + col);
}

#define FOR_CHUNK(i, group)                                                               \
  for (uint i = (group) * ADAFACTOR_CHUNK + gl_LocalInvocationID.x,                       \
            last = min(p.n, ((group) + 1) * ADAFACTOR_CHUNK);                             \
       i < last; i += gl_WorkGroupSize.x)
