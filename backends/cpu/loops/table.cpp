// The loops of a level by the names of their kernels. A new one is a line here.
#include "backends/cpu/loops/level.h"

#define REWIND_LOOPS(X) \
  X(accumulate)         \
  X(argreduce)          \
  X(binary)             \
  X(compare)            \
  X(copy)               \
  X(dropout)            \
  X(fill)               \
  X(random)             \
  X(reduce)             \
  X(scan)               \
  X(unary)              \
  X(unary_grad)         \
  X(where)

namespace rw::cpu::REWIND_LEVEL {

#define REWIND_LOOP(kernel) bool kernel(const LoopCall& call);
REWIND_LOOPS(REWIND_LOOP)
#undef REWIND_LOOP

extern const Loop table[];
extern const size_t table_size;

#define REWIND_LOOP(kernel) {#kernel, kernel},
const Loop table[] = {REWIND_LOOPS(REWIND_LOOP)};
#undef REWIND_LOOP
const size_t table_size = sizeof table / sizeof table[0];

}  // namespace rw::cpu::REWIND_LEVEL
