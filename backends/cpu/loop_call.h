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

// Lines of a matrix of 16-bit elements, `step` elements apart; if transposed, they are its columns.
struct Lines16 {
  const std::byte* data;
  int64_t step;
  bool is_transposed;
};

// A tile of a product, on one thread: c [m, n] = alpha a [m, k] b [k, n], or c += that product.
struct ProductTile {
  int64_t m, n, k;
  Lines16 a, b;
  DType dtype;  // of a and b
  float alpha;
  bool adds;
  float* c;
  int64_t c_step;
  std::byte* y;  // receives c in 16 bits, too, as soon as it is made; or null
  int64_t y_step;
  DType y_dtype;
  // Memory of k floats for each row and for each column of the next multiple of 32, and 16 more.
  float* scratch;
};

struct Loop {
  const char* kernel;
  // Returns false if there is no form of this call; then nothing was done.
  bool (*run)(const LoopCall& call);
};

}  // namespace rw::cpu
