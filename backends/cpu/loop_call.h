// A kernel call as vector loops see it. There are no functions here: an inline function that a
// level's compiler has compiled could, if others use it too, be linked into code for every
// processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/base/dtype.h"

namespace rw::cpu {

struct LoopCall {
  const void* params;  // a struct of shaders/params.h
  std::byte* data[8];  // the address of element 0 of each binding, with its offset added
  DType dtype[8];
  uint32_t constant[4];  // specialization constants; 0 if the call gives none
};

struct Loop {
  const char* kernel;
  // Returns false if there is no form of this call; then nothing was done.
  bool (*run)(const LoopCall& call);
};

}  // namespace rw::cpu
