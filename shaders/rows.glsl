// Row kernels: one workgroup per row; in each round a thread has 8 consecutive columns.
#include "some.glsl"

// True when every row's columns can move 8 at a time. `offsets`: bitwise or of the element offsets.
bool whole_rows(uint cols, uint offsets) { return (cols | offsets) % 8 == 0; }

// A loop over the thread's columns, 8 from c in each round.
#define FOR_COLUMNS(c, cols) \
  for (uint c = gl_LocalInvocationID.x * 8; c < (cols); c += gl_WorkGroupSize.x * 8)
