// Eight elements one by one, for what load8 and store8 cannot reach. Unrolled: inside another loop
// these would use up a thread's loop iterations (docs/kernels.md).

// Elements i to i + count - 1 (count <= 8) into lo and hi; the others keep their values.
#define LOAD_SOME(LOAD, i, count, lo, hi)          \
  [[unroll]] for (uint k = 0; k < 4; ++k) {        \
    if (k < (count)) lo[k] = LOAD((i) + k);        \
    if (k + 4 < (count)) hi[k] = LOAD((i) + k + 4); \
  }

#define STORE_SOME(STORE, i, count, lo, hi)        \
  [[unroll]] for (uint k = 0; k < 4; ++k) {        \
    if (k < (count)) STORE((i) + k, lo[k]);        \
    if (k + 4 < (count)) STORE((i) + k + 4, hi[k]); \
  }
