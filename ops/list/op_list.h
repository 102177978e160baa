// The public ops, as their declarations and the heads above these describe them.
#pragma once

#include <span>

namespace rw {

// A public op. Texts are those of the head, or its defaults (docs/design.md).
struct OpInfo {
  const char* name;       // unique; that of its records, if it makes one of its own
  const char* signature;  // its declaration
  const char* torch;      // PyTorch's name for it; empty: there is none
  const char* dtypes;     // of the tensors that it computes with: none, float, i32, float i32, any
  const char* autocast;   // low, f32, keep, or the op whose rule it follows; empty: not listed
  int order;              // 0: it has no gradient; 1: one; 2: also gradients of that, and so on
};

// All of them, by name.
std::span<const OpInfo> op_list();

}  // namespace rw
