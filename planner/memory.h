// One number for the memory of a loop that plans nothing itself:
//     const rw::Memory memory("6GiB");  // before the model
//     ... any model, optimizer and training loop ...
// Where a program can build its model for settings, Choices knows more ways
// (planner/choices/choices.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "auto_recompute.h"

namespace rw {

// While it lives, the blocks of the default device stay within so many bytes, in all steps of this
// thread, the first one included: forward passes evict, and are planned when they come again
// (AutoRecompute). Optimizers that are made meanwhile, and that nobody told where to keep states,
// keep them in host memory where the device's is not enough (offload_states), and the parameters,
// too, where that is not enough (offload_parameters). Updates have the bits that they have without
// it. OutOfMemory says what an op would need where that is more. REWIND_MEMORY=6GiB does the same
// for a program without a line of code.
class [[nodiscard]] Memory {
 public:
  // ValueError for a text that is no number of bytes; AutogradError inside another one, or inside
  // another scope that follows passes.
  explicit Memory(std::string_view bytes);
  explicit Memory(uint64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

 private:
  const AutoRecompute recompute_;
};

}  // namespace rw
