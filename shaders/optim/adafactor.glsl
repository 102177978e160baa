// The common part of Adafactor's kernels: the rate of the mean squares, and means without loss scale.
#include "common/counts.glsl"

float moved(float x, float mean) {
  return x + pow(float(own_updates(p.own)), p.beta2_decay) * (mean - x);
}

// Returns the mean square of n elements whose norm is `norm` with the loss scale.
float mean_square(float norm, uint n) {
  float root = load_state(STATE_GRAD_FACTOR) * norm / sqrt(float(n));
  return root * root;
}
