// Row kernels: one workgroup per row. The columns that move in 16-byte words come first, 8 per thread and round, then
// the others one by one. There are two loops instead of a branch inside one, since CPU drivers run both sides of a
// branch.

// Returns all columns, or none if rows do not begin on whole words. `offsets` is the bitwise or of the element offsets.
uint word_columns(uint cols, uint offsets) { return (cols | offsets) % 8 == 0 ? cols : 0; }

#define FOR_WORDS(c, words) \
  for (uint c = gl_LocalInvocationID.x * 8; c < (words); c += gl_WorkGroupSize.x * 8)
#define FOR_OTHERS(c, words, cols) \
  for (uint c = (words) + gl_LocalInvocationID.x; c < (cols); c += gl_WorkGroupSize.x)
