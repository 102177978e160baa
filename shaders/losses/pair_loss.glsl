// Losses of pairs of elements, and their derivatives. ops/losses/losses.h names the sources.
#include "elementwise/elementwise.glsl"
#include "common/flat.glsl"
layout(constant_id = 0) const uint KIND = 0;  //! 0 1 2 3 4 5 6 7 8
layout(constant_id = 1) const bool WEIGHTED = false;

// The logarithm is at least -100, as in PyTorch.
float bounded_log(float x) { return max(log(x), -100.0); }
float bounded_log1p(float x) { return max(log1p(x), -100.0); }

// Returns the weight of the positive class of element i.
float positive(uint i) { return WEIGHTED ? load_weight(i % p.period) : 1.0; }

// Neither sum has terms that cancel if t is 0 or 1.
float bce_logits(float x, float t, float w) {
  const float rest = log1p(exp(-abs(x)));
  return (1.0 - t) * (max(x, 0.0) + rest) + t * w * (max(-x, 0.0) + rest);
}
float bce_logits_slope(float x, float t, float w) { return (1.0 - t) * sigmoid(x) - t * w * sigmoid(-x); }

// The share of a target in the loss, and 1 - its probability.
float focal_share(float t) { return p.a < 0.0 ? 1.0 : p.a * t + (1.0 - p.a) * (1.0 - t); }
float focal_rest(float x, float t) { return sigmoid(x) * (1.0 - t) + sigmoid(-x) * t; }
float focal_power(float q, float exponent) { return exponent == 0.0 ? 1.0 : pow(q, exponent); }

float loss(uint i, float x, float t) {
  float d = abs(x - t);
  switch (KIND) {
    case LOSS_MSE: return d * d;
    case LOSS_L1: return d;
    case LOSS_SMOOTH_L1: return d < p.a ? 0.5 * d * d / p.a : d - 0.5 * p.a;
    case LOSS_HUBER: return d < p.a ? 0.5 * d * d : p.a * (d - 0.5 * p.a);
    case LOSS_BCE: return -t * bounded_log(x) - (1.0 - t) * bounded_log1p(-x);
    case LOSS_BCE_LOGITS: return bce_logits(x, t, positive(i));
    case LOSS_KL: return t > 0.0 ? t * (log(t) - x) : t == 0.0 ? 0.0 : NAN;
    case LOSS_KL_LOG: return exp(t) * (t - x);
    default: return focal_share(t) * bce_logits(x, t, 1.0) * focal_power(focal_rest(x, t), p.b);
  }
}

float focal_slope_x(float x, float t) {
  float q = max(focal_rest(x, t), 1e-30), slope = bce_logits_slope(x, t, 1.0) * focal_power(q, p.b);
  if (p.b != 0.0) slope += bce_logits(x, t, 1.0) * p.b * pow(q, p.b - 1.0) * (1.0 - 2.0 * t) * sigmoid_grad(x);
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
    case LOSS_BCE_LOGITS: return bce_logits_slope(x, t, positive(i));
    case LOSS_KL: return -t;
    case LOSS_KL_LOG: return -exp(t);
    default: return focal_slope_x(x, t);
  }
}

float focal_slope_t(float x, float t) {
  float q = max(focal_rest(x, t), 1e-30), l = bce_logits(x, t, 1.0), power = focal_power(q, p.b);
  float slope = focal_share(t) * -x * power;
  if (p.a >= 0.0) slope += (2.0 * p.a - 1.0) * l * power;
  if (p.b != 0.0) slope += focal_share(t) * l * p.b * pow(q, p.b - 1.0) * tanh(-0.5 * x);
  return slope;
}

float slope_t(uint i, float x, float t) {
  switch (KIND) {
    case LOSS_BCE: return bounded_log1p(-x) - bounded_log(x);
    case LOSS_BCE_LOGITS: {
      const float w = positive(i);
      return (w * max(-x, 0.0) - max(x, 0.0)) + (w - 1.0) * log1p(exp(-abs(x)));
    }
    case LOSS_KL: return t > 0.0 ? log(t) + 1.0 - x : 0.0;
    case LOSS_KL_LOG: return exp(t) * (t - x + 1.0);
    case LOSS_FOCAL: return focal_slope_t(x, t);
    default: return -slope_x(i, x, t);
  }
}
