//! buffers: partial:f32:read state:f32:read_write
//! params: UpdatePrepareParams
//! local: 128
#include "common/counts.glsl"
#include "common/trig.glsl"
layout(constant_id = 0) const uint PART = 0;  //! 0 1 2 3 4 5 6 7

void store_count(uint slot, uint n) {
  store_state(slot, float(n & 0xffffffu));
  store_state(slot + STATE_HIGH, float(n >> 24));
}

void count(uint slot) { store_count(slot, load_count(slot) + 1); }

float cosine(float high, float low, float progress) {
  return low + (high - low) * 0.5 * (1.0 + cos(3.14159265 * progress));
}

float one_cycle(uint t) {
  if (float(t) <= p.peak) return cosine(p.gamma, 1.0, t / p.peak);
  return cosine(1.0, p.floor_factor, min(1.0, (float(t) - p.peak) / (float(p.total - 1) - p.peak)));
}

// There are at most 31 periods if each is longer than the one before.
float restarts(uint updates) {
  float length = p.period, since = float(updates);
  if (p.gamma == 1.0) {
    since = float(updates % p.period);
  } else {
    for (; since >= length; length *= p.gamma) since -= length;
  }
  return cosine(1.0, p.floor_factor, since / length);
}

float multistep(uint t) {
  float reached = 0.0;
  [[unroll]] for (uint i = 0; i < MOST_MILESTONES; ++i) {
    if (p.milestones[i] <= t) reached += 1.0;
  }
  return reached == 0.0 ? 1.0 : pow(p.gamma, reached);
}

// Returns the factor on the learning rate of the update that follows `t` others.
float schedule_factor(uint t) {
  if (p.schedule == SCHEDULE_NOAM) {
    return p.gamma * min(sqrt(p.warmup / (float(t) + 1.0)), (float(t) + 1.0) / p.warmup);
  }
  if (p.schedule == SCHEDULE_ONE_CYCLE) return one_cycle(t);
  if (t < p.warmup) return (float(t) + 1.0) / p.warmup;
  uint since = t - p.warmup;
  float rest = 1.0 - p.floor_factor;
  float progress = min(1.0, float(since) / (p.total > p.warmup ? float(p.total - p.warmup) : 1.0));
  switch (p.schedule) {
    case SCHEDULE_COSINE:
      return cosine(1.0, p.floor_factor, progress);
    case SCHEDULE_LINEAR:
      return 1.0 - rest * progress;
    case SCHEDULE_STEP:
      return pow(p.gamma, float(since / max(p.period, 1)));
    case SCHEDULE_POLYNOMIAL:
      return p.floor_factor + rest * (progress < 1.0 ? pow(1.0 - progress, p.gamma) : 0.0);
    case SCHEDULE_MULTISTEP:
      return multistep(t);
    case SCHEDULE_RESTARTS:
      return restarts(since);
    default:
      return 1.0;
  }
}

void update_loss_scale(bool overflow) {
  float scale = load_state(STATE_SCALE);
  uint good = load_count(STATE_GOOD), bad = load_count(STATE_BAD);
  if (overflow) {
    good = 0;
    ++bad;
    if (bad >= p.hysteresis) {
      float lower = max(p.min_scale, scale * p.backoff);
      if (lower < scale) count(STATE_FALLS);
      scale = lower;
      bad = 0;
    }
  } else {
    ++good;
    if (p.keep_bad == 0) bad = 0;
    if (good >= p.interval) {
      float higher = min(p.max_scale, scale * p.growth);
      if (higher > scale) {
        count(STATE_GROWTHS);
        store_count(STATE_FALLS, 0);
      }
      scale = higher;
      good = bad = 0;
    }
  }
  store_state(STATE_SCALE, scale);
  store_count(STATE_GOOD, good);
  store_count(STATE_BAD, bad);
}

// A norm, times a scale that keeps it in range.
struct Norm {
  float value, scale;
};

// Sets the factors of an update whose gradients have this norm, and counts the update.
void begin_update(float unscale, Norm norm, bool clips) {
  uint updates = load_count(STATE_UPDATES);
  float clip = clips ? min(1.0, p.max_norm * norm.scale / (norm.value + 1e-6 * norm.scale)) : 1.0;
  store_state(STATE_GRAD_FACTOR, unscale * clip);
  store_state(STATE_LR_FACTOR, schedule_factor(updates));
  store_count(STATE_UPDATES, updates + 1);
}

// The findings of all threads about the gradients.
struct Found {
  float squares, scale;  // sum of squares times scale^2
  bool overflow;
};

shared float scale_of[gl_WorkGroupSize.x], squares_of[gl_WorkGroupSize.x],
    faults_of[gl_WorkGroupSize.x];

// Returns the least scale of all chunks with a gradient.
float common_scale() {
  float scale = SQUARES_UP;
  for (uint c = gl_LocalInvocationID.x; c < p.chunks; c += gl_WorkGroupSize.x) {
    float own = load_partial(2 * p.chunks + c);
    if (own > 0.0) scale = min(scale, own);
  }
  scale_of[gl_LocalInvocationID.x] = scale;
  barrier();
  for (uint i = 0; i < gl_WorkGroupSize.x; ++i) scale = min(scale, scale_of[i]);
  return scale;
}

Found look_at_chunks() {
  const uint thread = gl_LocalInvocationID.x, faults_at = PART == PREPARE_CHECK ? 0 : p.chunks;
  float squares = 0.0, faults = 0.0, scale = PART == PREPARE_CHECK ? 1.0 : common_scale();
  for (uint c = thread; c < p.chunks; c += gl_WorkGroupSize.x) {
    float own = PART == PREPARE_CHECK ? 0.0 : load_partial(2 * p.chunks + c);
    float ratio = own > 0.0 ? scale / own : 0.0;
    if (ratio > 0.0) squares += load_partial(c) * ratio * ratio;
    faults = max(faults, load_partial(faults_at + c));
  }
  squares_of[thread] = squares;
  faults_of[thread] = faults;
  barrier();
  Found all = Found(0.0, scale, false);
  for (uint i = 0; i < gl_WorkGroupSize.x; ++i) {
    all.squares += squares_of[i];
    all.overflow = all.overflow || faults_of[i] != 0.0;
  }
  return all;
}

// Computes the norm and updates the loss scale. Returns whether there was an overflow, which counts as a skipped
// update.
bool judge(Found found, float unscale, out Norm norm) {
  bool overflow = found.overflow, voided = false;
  if (PART == PREPARE_WINDOW) {
    overflow = overflow || load_state(STATE_WINDOW_WEIGHT) == 0.0;
    voided = load_count(STATE_WINDOW_VOIDED) > 0;
  }
  norm = Norm(sqrt(found.squares) * unscale, found.scale);
  if (PART == PREPARE_ALL || !overflow) store_state(STATE_GRAD_NORM, norm.value / norm.scale);
  store_state(STATE_FOUND_INF, overflow ? 1.0 : 0.0);
  if (p.dynamic != 0) update_loss_scale(overflow || voided);
  if (overflow) count(STATE_SKIPPED);
  store_count(STATE_SKIPPED_IN_A_ROW, overflow ? load_count(STATE_SKIPPED_IN_A_ROW) + 1 : 0);
  return overflow;
}

// Judges a micro-batch alone.
void judge_micro_batch(bool overflow) {
  store_state(STATE_FOUND_INF, overflow ? 1.0 : 0.0);
  if (overflow) {
    count(STATE_WINDOW_VOIDED);
    count(STATE_VOIDED);
  } else {
    store_state(STATE_WINDOW_WEIGHT, load_state(STATE_WINDOW_WEIGHT) + p.weight);
  }
}

void main() {
  Found found = Found(0.0, 1.0, false);
  if (PART != PREPARE_BEGIN && PART != PREPARE_PART) found = look_at_chunks();
  if (thread_id() != 0) return;
  float weight = PART == PREPARE_WINDOW ? load_state(STATE_WINDOW_WEIGHT) : p.weight;
  // Uses the scale in force when the gradients were made, not the one set below.
  float unscale = weight > 0.0 ? 1.0 / (load_state(STATE_SCALE) * weight) : 0.0;
  Norm norm;
  switch (PART) {
    case PREPARE_ALL:
    case PREPARE_WINDOW:
      if (!judge(found, unscale, norm)) begin_update(unscale, norm, p.max_norm > 0.0);
      break;
    case PREPARE_BEGIN:
      store_state(STATE_FOUND_INF, 0.0);
      begin_update(unscale, Norm(load_state(STATE_GRAD_NORM), 1.0),
                   p.max_norm > 0.0 && load_count(STATE_UPDATES) > 0);
      break;
    case PREPARE_CHECK:
      if (found.overflow) store_state(STATE_FOUND_INF, 1.0);
      break;
    case PREPARE_END:
      if (judge(found, unscale, norm)) store_count(STATE_UPDATES, max(load_count(STATE_UPDATES), 1) - 1);
      break;
    case PREPARE_PART:
      store_state(STATE_FOUND_INF, 0.0);
      store_state(STATE_GRAD_FACTOR, unscale);
      break;
    case PREPARE_JUDGE:
      judge(found, unscale, norm);
      break;
    case PREPARE_MICRO_BATCH:
      judge_micro_batch(found.overflow);
  }
}
