// Adam's update of 4 elements, for kernels with its parameters.
#include "optim/moments.glsl"
#include "optim/adam_step.glsl"

void step4(Rates rates, inout vec4 x, vec4 g, inout vec4 m, inout vec4 v) {
  g *= rates.grad_factor;
  if (p.decoupled != 0) {
    x *= 1.0 - rates.decay;
  } else {
    g += p.weight_decay * x;
  }
  m = p.beta1 * m + (1.0 - p.beta1) * g;
  v = p.beta2 * v + (1.0 - p.beta2) * g * g;
  x -= adam_step(rates, m, v);
}
