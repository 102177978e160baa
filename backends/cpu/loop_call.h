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

// Lines of a matrix of 16 bits, `step` elements apart; transposed: they are its columns.
struct Lines16 {
  const std::byte* data;
  int64_t step;
  bool is_transposed;
};

// A tile of a product, on one thread: c [m, n] = alpha a [m, k] b [k, n], or c += that.
struct ProductTile {
  int64_t m, n, k;
  Lines16 a, b;
  DType dtype;  // of a and b
  float alpha;
  bool adds;
  float* c;
  int64_t c_step;
  std::byte* y;  // where c is wanted in 16 bits, too, as soon as it is made; or null
  int64_t y_step;
  DType y_dtype;
  float* scratch;  // of k floats for each row, and for each column of the next 32 ones, and 16
};

struct Loop {
  const char* kernel;
  // False: there is no form of this call, and nothing was done.
  bool (*run)(const LoopCall& call);
};

}  // namespace rw::cpu
