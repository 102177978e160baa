// LAMB: the update of 4 elements before the trust ratio. Both kernels compute it from the same values, so it needs no
// memory.
#include "optim/moments.glsl"
#include "common/chunks.glsl"
#include "common/counts.glsl"
#include "common/flat.glsl"

struct Correction {
  float mean;          // 1 / (1 - beta1^t)
  float inverse_root;  // 1 / sqrt(1 - beta2^t)
};

// Returns the correction of the parameter that has this chunk.
Correction load_correction(uint chunk) {
  uint t = own_updates(chunk);
  return Correction(1.0 / one_minus_power(p.beta1, t), 1.0 / sqrt(one_minus_power(p.beta2, t)));
}

vec4 direction(Correction correction, vec4 x, vec4 m, vec4 v) {
  return correction.mean * m / (sqrt(v) * correction.inverse_root + p.eps) + p.weight_decay * x;
}
