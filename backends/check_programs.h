// The programs of the self-check: small ones with known answers.
#pragma once

#include <span>
#include <vector>

#include "../core/tensor/tensor.h"

namespace rw {

struct Check {
  const char* name;
  std::vector<Tensor> (*run)(DType dtype);
  bool is_exact = false;  // the same bits, but that a NaN may be any NaN; runs once
  bool is_large = false;  // for the tiles of GPUs, of which CPU drivers have no such ones
  bool in_bf16 = false;   // too, which has matrices of its own
};

std::span<const Check> checks();

}  // namespace rw
