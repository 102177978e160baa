// Flat kernels: thread t has elements 8 t to 8 t + 7 of dense tensors.

// Tells whether the thread's 8 elements exist and can move in 16-byte words. `offsets` is the bitwise or of the
// tensors' element offsets.
bool is_whole(uint i, uint n, uint offsets) {
  return i + REWIND_FLAT <= n && offsets % REWIND_FLAT == 0;
}

// Loads elements at to at + 7 of values that repeat after `period` >= 8 elements, by the accessors of a buffer: in
// words of 16 bytes if the period is a multiple of 8, else one by one.
#define LOAD8_PERIODIC(load, load8, at, period, lo, hi)                            \
  if (period % REWIND_FLAT == 0) {                                                 \
    load8(at, lo, hi);                                                             \
  } else {                                                                         \
    [[unroll]] for (uint k = 0; k < REWIND_FLAT; ++k) {                            \
      uint j = at + k < period ? at + k : at + k - period;                         \
      if (k < 4) lo[k] = load(j);                                                  \
      if (k >= 4) hi[k - 4] = load(j);                                             \
    }                                                                              \
  }

// Returns one past the thread's last element.
uint flat_end(uint i, uint n) { return n - i < REWIND_FLAT ? n : i + REWIND_FLAT; }
