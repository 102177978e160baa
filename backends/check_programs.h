// The programs of the self-check: small ones with known answers.
#pragma once

#include <span>
#include <vector>

#include "../core/tensor/tensor.h"

namespace rw {

struct Check {
  const char* name;
  std::vector<Tensor> (*run)(DType dtype);
  bool is_exact = false;  // has the same bits everywhere, but a NaN may be any NaN; runs once
  bool is_large = false;  // fills the tiles of GPUs; CPU drivers have no such tiles
  bool in_bf16 = false;   // runs in bf16 as well, which has matrices of its own
};

std::span<const Check> checks();

}  // namespace rw
