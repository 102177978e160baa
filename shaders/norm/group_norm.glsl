// The group normalisation kernels: a thread has 8 channels of a run of rows of one sample.
#include "common/some.glsl"
layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1

// Rows [begin, end) of [samples * rows, channels], part `part` of a sample, and 8 channels from c.
struct Place {
  uint sample_index, part, begin, end, c;
};

Place place(uint run) {
  uint columns = (p.channels + 7) / 8, parts = (p.rows + run - 1) / run;
  uint c = thread_id() % columns * 8, part = thread_id() / columns % parts;
  uint sample_index = thread_id() / columns / parts, first = sample_index * p.rows;
  return Place(sample_index, part, first + part * run, first + min(part * run + run, p.rows), c);
}

// Loads the 8 channels of a row, or those that exist.
#define LOAD_CHANNELS(LOAD8, LOAD, i, c, lo, hi)      \
  if (WHOLE == 1) {                                   \
    LOAD8(i, lo, hi);                                 \
  } else {                                            \
    LOAD_SOME(LOAD, i, p.channels - (c), lo, hi)      \
  }

#define STORE_CHANNELS(STORE8, STORE, i, c, lo, hi)   \
  if (WHOLE == 1) {                                   \
    STORE8(i, lo, hi);                                \
  } else {                                            \
    STORE_SOME(STORE, i, p.channels - (c), lo, hi)    \
  }

uint group_of(uint c) { return min(c, p.channels - 1) / p.width; }

// Loads the first element of the group of each of a thread's 8 channels.
void load_firsts(Place at, out vec4 lo, out vec4 hi) {
  uint start = at.sample_index * p.rows * p.channels;
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    lo[k] = load_x(start + group_of(at.c + k) * p.width);
    hi[k] = load_x(start + group_of(at.c + k + 4) * p.width);
  }
}
