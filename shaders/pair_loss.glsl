// Losses of pairs of elements, and their derivatives. ops/losses/losses.h names the sources.
#include "exact.glsl"
#include "flat.glsl"
layout(constant_id = 0) const uint KIND = 0;  //! 0 1 2 3 4 5 6 7 8
layout(constant_id = 1) const bool WEIGHTED = false;

// The logarithm is at least -100, as in PyTorch.
float bounded_log(float x) { return max(log(x), -100.0); }
// Returns log(1 + exp(x)), without overflow.
float log_one_plus_exp(float x) { return max(x, 0.0) + log(1.0 + exp(-abs(x))); }

float logistic(float x) { return 1.0 / (1.0 + exp(-x)); }

// Returns the weight of the positive class of element i, joined with its target.
float positive(uint i, float t) {
  return WEIGHTED ? 1.0 + (load_weight(i % p.period) - 1.0) * t : 1.0;
}

float bce_logits(uint i, float x, float t) {
  return (1.0 - t) * x + positive(i, t) * log_one_plus_exp(-x);
}

// The share of a target in the loss, and 1 - its probability.
float focal_share(float t) { return p.a < 0.0 ? 1.0 : p.a * t + (1.0 - p.a) * (1.0 - t); }
float focal_rest(float x, float t) { return logistic(x) * (1.0 - t) + logistic(-x) * t; }
float focal_power(float q, float exponent) { return exponent == 0.0 ? 1.0 : pow(q, exponent); }

float loss(uint i, float x, float t) {
  float d = abs(x - t);
  switch (KIND) {
    case LOSS_MSE: return d * d;
    case LOSS_L1: return d;
    case LOSS_SMOOTH_L1: return d < p.a ? 0.5 * d * d / p.a : d - 0.5 * p.a;
    case LOSS_HUBER: return d < p.a ? 0.5 * d * d : p.a * (d - 0.5 * p.a);
    case LOSS_BCE: return -t * bounded_log(x) - (1.0 - t) * bounded_log(1.0 - x);
    case LOSS_BCE_LOGITS: return bce_logits(i, x, t);
    case LOSS_KL: return t > 0.0 ? t * (log(t) - x) : t == 0.0 ? 0.0 : NAN;
    case LOSS_KL_LOG: return exp(t) * (t - x);
    default: return focal_share(t) * bce_logits(i, x, t) * focal_power(focal_rest(x, t), p.b);
  }
}

float focal_slope_x(uint i, float x, float t) {
  float s = logistic(x), q = max(focal_rest(x, t), 1e-30), slope = (s - t) * focal_power(q, p.b);
  if (p.b != 0.0) {
    slope += bce_logits(i, x, t) * p.b * pow(q, p.b - 1.0) * (1.0 - 2.0 * t) * s * logistic(-x);
  }
  return focal_share(t) * slope;
}

float slope_x(uint i, float x, float t) {
  float d = x - t, direction = d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : is_nan(d) ? d : 0.0;
  switch (KIND) {
    case LOSS_MSE: return 2.0 * d;
    case LOSS_L1: return direction;
    case LOSS_SMOOTH_L1: return abs(d) < p.a ? d / p.a : direction;
    case LOSS_HUBER: return abs(d) < p.a ? d : p.a * direction;
    case LOSS_BCE: return d / max(x * (1.0 - x), 1e-12);
    case LOSS_BCE_LOGITS: return 1.0 - t - positive(i, t) * logistic(-x);
    case LOSS_KL: return -t;
    case LOSS_KL_LOG: return -exp(t);
    default: return focal_slope_x(i, x, t);
  }
}

float focal_slope_t(uint i, float x, float t) {
  float q = max(focal_rest(x, t), 1e-30), l = bce_logits(i, x, t), power = focal_power(q, p.b);
  float slope = focal_share(t) * -x * power;
  if (p.a >= 0.0) slope += (2.0 * p.a - 1.0) * l * power;
  if (p.b != 0.0) {
    slope += focal_share(t) * l * p.b * pow(q, p.b - 1.0) * (logistic(-x) - logistic(x));
  }
  return slope;
}

float slope_t(uint i, float x, float t) {
  switch (KIND) {
    case LOSS_BCE: return bounded_log(1.0 - x) - bounded_log(x);
    case LOSS_BCE_LOGITS:
      return WEIGHTED ? (load_weight(i % p.period) - 1.0) * log_one_plus_exp(-x) - x : -x;
    case LOSS_KL: return t > 0.0 ? log(t) + 1.0 - x : 0.0;
    case LOSS_KL_LOG: return exp(t) * (t - x + 1.0);
    case LOSS_FOCAL: return focal_slope_t(i, x, t);
    default: return -slope_x(i, x, t);
  }
}
