//! buffers: partial:f32:read state:f32:read_write
//! params: UpdatePrepareParams
//! local: 128
#include "trig.glsl"
layout(constant_id = 0) const uint PART = 0;  //! 0 1 2 3 4 5 6 7

float cosine(float high, float low, float progress) {
  return low + (high - low) * 0.5 * (1.0 + cos(3.14159265 * progress));
}

float one_cycle(float t) {
  if (t <= p.peak) return cosine(p.gamma, 1.0, t / p.peak);
  return cosine(1.0, p.floor_factor, min(1.0, (t - p.peak) / (float(p.total - 1) - p.peak)));
}

// There are at most 31 periods if each is longer than the one before.
float restarts(float since) {
  float length = p.period;
  if (p.gamma == 1.0) {
    since = float(uint(since) % p.period);
  } else {
    for (; since >= length; length *= p.gamma) since -= length;
  }
  return cosine(1.0, p.floor_factor, since / length);
}

float multistep(float t) {
  float reached = 0.0;
  [[unroll]] for (uint i = 0; i < MOST_MILESTONES; ++i) {
    if (p.milestones[i] <= t) reached += 1.0;
  }
  return reached == 0.0 ? 1.0 : pow(p.gamma, reached);
}

// Returns the factor on the learning rate of the update that follows `t` others.
float schedule_factor(float t) {
  if (p.schedule == SCHEDULE_NOAM) {
    return p.gamma * min(sqrt(p.warmup / (t + 1.0)), (t + 1.0) / p.warmup);
  }
  if (p.schedule == SCHEDULE_ONE_CYCLE) return one_cycle(t);
  if (t < p.warmup) return (t + 1.0) / p.warmup;
  float since = t - p.warmup, rest = 1.0 - p.floor_factor;
  float progress = min(1.0, since / (p.total > p.warmup ? float(p.total - p.warmup) : 1.0));
  switch (p.schedule) {
    case SCHEDULE_COSINE:
      return cosine(1.0, p.floor_factor, progress);
    case SCHEDULE_LINEAR:
      return 1.0 - rest * progress;
    case SCHEDULE_STEP:
      return pow(p.gamma, float(uint(since) / max(p.period, 1)));
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
  float good = load_state(STATE_GOOD), bad = load_state(STATE_BAD);
  if (overflow) {
    good = 0.0;
    bad += 1.0;
    if (bad >= p.hysteresis) {
      float lower = max(p.min_scale, scale * p.backoff);
      if (lower < scale) store_state(STATE_FALLS, load_state(STATE_FALLS) + 1.0);
      scale = lower;
      bad = 0.0;
    }
  } else {
    good += 1.0;
    if (p.keep_bad == 0) bad = 0.0;
    if (good >= p.interval) {
      float higher = min(p.max_scale, scale * p.growth);
      if (higher > scale) {
        store_state(STATE_GROWTHS, load_state(STATE_GROWTHS) + 1.0);
        store_state(STATE_FALLS, 0.0);
      }
      scale = higher;
      good = bad = 0.0;
    }
  }
  store_state(STATE_SCALE, scale);
  store_state(STATE_GOOD, good);
  store_state(STATE_BAD, bad);
}

// Sets the factors of an update whose gradients have this norm, and counts the update.
void begin_update(float unscale, float norm, bool clips) {
  float updates = load_state(STATE_UPDATES);
  float clip = clips ? min(1.0, p.max_norm / (norm + 1e-6)) : 1.0;
  store_state(STATE_GRAD_FACTOR, unscale * clip);
  store_state(STATE_LR_FACTOR, schedule_factor(updates));
  store_state(STATE_UPDATES, updates + 1.0);
}

// The findings of all threads about the gradients.
struct Found {
  float squares;
  bool overflow;
};

shared float squares_of[gl_WorkGroupSize.x], faults_of[gl_WorkGroupSize.x];

Found look_at_chunks() {
  const uint thread = gl_LocalInvocationID.x, faults_at = PART == PREPARE_CHECK ? 0 : p.chunks;
  float squares = 0.0, faults = 0.0;
  for (uint c = thread; c < p.chunks; c += gl_WorkGroupSize.x) {
    squares += load_partial(c);
    faults = max(faults, load_partial(faults_at + c));
  }
  squares_of[thread] = squares;
  faults_of[thread] = faults;
  barrier();
  Found all = Found(0.0, false);
  for (uint i = 0; i < gl_WorkGroupSize.x; ++i) {
    all.squares += squares_of[i];
    all.overflow = all.overflow || faults_of[i] != 0.0;
  }
  return all;
}

// Computes the norm and updates the loss scale. Returns whether there was an overflow, which counts as a skipped
// update.
bool judge(Found found, float unscale, out float norm) {
  bool overflow = found.overflow, voided = false;
  if (PART == PREPARE_WINDOW) {
    overflow = overflow || load_state(STATE_WINDOW_WEIGHT) == 0.0;
    voided = load_state(STATE_WINDOW_VOIDED) > 0.0;
  }
  norm = sqrt(found.squares) * unscale;
  if (PART == PREPARE_ALL || !overflow) store_state(STATE_GRAD_NORM, norm);
  store_state(STATE_FOUND_INF, overflow ? 1.0 : 0.0);
  if (p.dynamic != 0) update_loss_scale(overflow || voided);
  store_state(STATE_SKIPPED, load_state(STATE_SKIPPED) + (overflow ? 1.0 : 0.0));
  store_state(STATE_SKIPPED_IN_A_ROW,
              overflow ? load_state(STATE_SKIPPED_IN_A_ROW) + 1.0 : 0.0);
  return overflow;
}

// Judges a micro-batch alone.
void judge_micro_batch(bool overflow) {
  store_state(STATE_FOUND_INF, overflow ? 1.0 : 0.0);
  if (overflow) {
    store_state(STATE_WINDOW_VOIDED, load_state(STATE_WINDOW_VOIDED) + 1.0);
    store_state(STATE_VOIDED, load_state(STATE_VOIDED) + 1.0);
  } else {
    store_state(STATE_WINDOW_WEIGHT, load_state(STATE_WINDOW_WEIGHT) + p.weight);
  }
}

void main() {
  Found found = Found(0.0, false);
  if (PART != PREPARE_BEGIN && PART != PREPARE_PART) found = look_at_chunks();
  if (thread_id() != 0) return;
  float weight = PART == PREPARE_WINDOW ? load_state(STATE_WINDOW_WEIGHT) : p.weight;
  // Uses the scale in force when the gradients were made, not the one set below.
  float unscale = weight > 0.0 ? 1.0 / (load_state(STATE_SCALE) * weight) : 0.0;
  float norm;
  switch (PART) {
    case PREPARE_ALL:
    case PREPARE_WINDOW:
      if (!judge(found, unscale, norm)) begin_update(unscale, norm, p.max_norm > 0.0);
      break;
    case PREPARE_BEGIN:
      store_state(STATE_FOUND_INF, 0.0);
      begin_update(unscale, load_state(STATE_GRAD_NORM),
                   p.max_norm > 0.0 && load_state(STATE_UPDATES) > 0.0);
      break;
    case PREPARE_CHECK:
      if (found.overflow) store_state(STATE_FOUND_INF, 1.0);
      break;
    case PREPARE_END:
      if (judge(found, unscale, norm)) store_state(STATE_UPDATES, load_state(STATE_UPDATES) - 1.0);
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
