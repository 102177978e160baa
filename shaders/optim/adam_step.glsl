// Adam's step from its moments, for kernels with AdamParams.
#include "common/counts.glsl"

// The values that all elements of an update share.
struct Rates {
  float grad_factor, decay;
  float step;          // lr / (1 - beta1^t)
  float inverse_root;  // 1 / sqrt(1 - beta2^t)
};

// Returns the rates of the parameter that has this chunk.
Rates load_rates(uint chunk) {
  float lr = p.lr * load_state(STATE_LR_FACTOR);
  uint t = own_updates(chunk);
  return Rates(load_state(STATE_GRAD_FACTOR), lr * p.weight_decay, lr / one_minus_power(p.beta1, t),
               1.0 / sqrt(one_minus_power(p.beta2, t)));
}

vec4 adam_step(Rates rates, vec4 m, vec4 v) {
  return rates.step * m / (sqrt(v) * rates.inverse_root + p.eps);
}
