//! buffers: target:i32:read frames:i32:read labels:i32:read states:i32:write
//! params: CtcParams
//! local: 64
#include "sequence/ctc.glsl"

// Returns the class of state s, -1 if there is none.
int class_of(uint n, uint s, uint count) {
  if (s >= count) return -1;
  const int label = s % 2 == 0 ? int(p.blank) : load_target(n * p.labels + s / 2);
  return label < 0 || label >= int(p.classes) ? -2 : label;
}

void main() {
  const uint i = thread_id();
  if (i >= p.samples * p.width) return;
  const uint n = i / p.width, s = i % p.width;
  const uint count = 2 * uint(clamp(load_labels(n), 0, int(p.labels))) + 1;
  const int own = class_of(n, s, count);
  int next = -1;
  for (uint k = count; k-- > s + 1;)
    if (class_of(n, k, count) == own) next = int(k);
  bool first = own >= 0;
  for (uint k = 0; k < s; ++k)
    if (class_of(n, k, count) == own) first = false;
  const bool skips = s >= 2 && s % 2 == 1 && class_of(n, s - 2, count) != own;
  store_states(state_at(n, CLASS, s), own);
  store_states(state_at(n, NEXT, s), own < 0 ? -1 : next);
  store_states(state_at(n, FLAGS, s), (first ? CTC_FIRST : 0) | (skips ? CTC_SKIPS : 0));
  const int known = s == 0 ? clamp(load_frames(n), 0, int(p.frames)) : s == 1 ? int(count) : 0;
  store_states(state_at(n, COUNTS, s), known);
}
