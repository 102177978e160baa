// Row kernels: one workgroup per row; in each round a thread has 8 consecutive columns.
#include "loops.glsl"

// True when every row's columns can move 8 at a time. `offsets`: bitwise or of the element offsets.
bool whole_rows(uint cols, uint offsets) { return (cols | offsets) % 8 == 0; }

// for each 8 columns from c of this thread
#define FOR_COLUMNS(c, cols) LONG_LOOP(c, gl_LocalInvocationID.x * 8, cols, gl_WorkGroupSize.x * 8)
