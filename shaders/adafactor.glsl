// The common part of Adafactor's kernels: the rate of the mean squares, and the gradient without loss scale.

float moved(float x, float mean) {
  return x + pow(load_state(STATE_UPDATES), p.beta2_decay) * (mean - x);
}

float squared_factor() {
  float factor = load_state(STATE_GRAD_FACTOR);
  return factor * factor;
}
