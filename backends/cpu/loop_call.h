// A kernel call as vector loops see it. Nothing here has functions: what a level's compiler makes
// of an inline function that others use, too, could be linked into code for every processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../core/base/dtype.h"

namespace rw::cpu {

struct LoopCall {
  const void* params;  // a struct of shaders/params.h
  std::byte* data[8];  // where element 0 of each binding lies: the offsets are added
  DType dtype[8];
  uint32_t constant[4];  // of specialization; 0 where the call gives none
};

struct Loop {
  const char* kernel;
  // False: there is no form of this call, and nothing was done.
  bool (*run)(const LoopCall& call);
};

}  // namespace rw::cpu
