//! buffers: rows:i32:read_write history:i32:read_write state:f32:read
//! params: RangeHistoryParams
//! local: 64

void note(uint at, int first, int second) {
  if (load_history(at) != 0) return;
  store_history(at, int(p.step));
  store_history(at + 1, int(p.update));
  store_history(at + 2, first);
  store_history(at + 3, second);
  store_history(at + 4, floatBitsToInt(load_state(STATE_SCALE)));
}

void tally(uint at) { store_history(at, load_history(at) + 1); }

void main() {
  uint row = thread_id();
  if (row >= p.rows) return;
  int counts[RANGE_SIZE];
  [[unroll]] for (uint i = 0; i < RANGE_SIZE; ++i) {
    counts[i] = load_rows(row * RANGE_SIZE + i);
    store_rows(row * RANGE_SIZE + i, 0);
  }
  int infinite = counts[RANGE_NANS] + counts[RANGE_INFINITIES];
  int normals = counts[RANGE_NORMALS], denormals = counts[RANGE_DENORMALS];
  if (p.step == 0 || infinite + normals + denormals + counts[RANGE_ZEROS] == 0) return;
  uint at = row * HISTORY_SIZE;
  tally(at + HISTORY_STEPS);
  if (infinite > 0) {
    note(at + HISTORY_OVERFLOW, counts[RANGE_NANS], counts[RANGE_INFINITIES]);
    tally(at + HISTORY_OVERFLOWS);
  }
  if (denormals > normals) {
    note(at + HISTORY_UNDERFLOW, denormals, normals);
    tally(at + HISTORY_UNDERFLOWS);
  }
  if (infinite + normals + denormals == 0) tally(at + HISTORY_ZEROS);
  store_history(at + HISTORY_LARGEST, max(load_history(at + HISTORY_LARGEST), counts[RANGE_LARGEST]));
  store_history(at + HISTORY_LEAST, max(load_history(at + HISTORY_LEAST), counts[RANGE_LEAST]));
}
