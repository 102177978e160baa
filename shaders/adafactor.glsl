// The common part of Adafactor's kernels: the rate of the mean squares, and the gradient without loss scale.
#include "counts.glsl"

float moved(float x, float mean) {
  return x + pow(float(own_updates(p.own)), p.beta2_decay) * (mean - x);
}

float squared_factor() {
  float factor = load_state(STATE_GRAD_FACTOR);
  return factor * factor;
}
