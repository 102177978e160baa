// Switches for programs without options of their own for memory:
//   REWIND_MEMORY_BUDGET=6GiB  live bytes of the device stay within it, by recomputation;
//                              REWIND_MEMORY also lets optimizers keep states in host memory
//                              (planner/memory.h)
//   REWIND_RECOMPUTE=memory|speed|evict|block  how (planner/auto_recompute.h; block: modules
//                              make segments of their blocks); evict needs a budget
//   REWIND_TIMELINE=FILE.html  what is in memory during an update in steady state
// A thread obeys them from its first optimizer or its first record on.
#pragma once

#include <cstdint>

#include "../core/autograd/tape.h"

namespace rw {

// Turns the switches off in programs that read the variables themselves.
void set_reads_environment(bool on);

// The bytes of this thread's Memory (planner/memory.h), or else of REWIND_MEMORY; 0: there are
// none, and in dry runs, which obey their callers. ValueError for a text that is no number of
// bytes.
uint64_t memory_of_thread();
void set_memory_of_thread(uint64_t bytes);  // for Memory alone; 0: its end

// Optimizers call these when one is made, and after each update. The first throws ValueError for a
// text that is not a budget, or not a way to recompute.
void apply_environment();
inline const bool applies_from_first_record = (Tape::before_first_record = apply_environment);
void apply_environment_after_update(Device& device);

}  // namespace rw
