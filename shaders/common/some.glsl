// Loads and stores of eight elements one by one, for those that load8 and store8 cannot reach. The loops are unrolled:
// inside another loop they would use up a thread's loop iterations (docs/kernels.md).

// Loads elements i to i + count - 1 (1 <= count) into lo and hi. Those beyond repeat the last one, so that no load lies
// in a branch, where drivers wait for each. STORE_SOME leaves them out.
#define LOAD_SOME(LOAD, i, count, lo, hi)         \
  [[unroll]] for (uint k = 0; k < 4; ++k) {       \
    lo[k] = LOAD((i) + min(k, (count) - 1));      \
    hi[k] = LOAD((i) + min(k + 4, (count) - 1));  \
  }

#define STORE_SOME(STORE, i, count, lo, hi)        \
  [[unroll]] for (uint k = 0; k < 4; ++k) {        \
    if (k < (count)) STORE((i) + k, lo[k]);        \
    if (k + 4 < (count)) STORE((i) + k + 4, hi[k]); \
  }
