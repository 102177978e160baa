// The common part of optimizers with moments, and of averages.

// Returns 1 - beta^t by squaring, without the cancellation of a beta near 1.
float one_minus_power(float beta, uint t) {
  float q = 0.0;
  for (int bit = findMSB(t); bit >= 0; --bit) {
    q *= 2.0 - q;
    if ((t >> bit & 1) != 0) q = 1.0 - beta + beta * q;
  }
  return q;
}
