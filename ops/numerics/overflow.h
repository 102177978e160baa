// Finds the op at which the values of a forward pass leave the range of their dtype.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "../../core/base/dtype.h"

namespace rw {

// The first value of a forward pass that was not finite.
struct Overflow {
  std::string op;            // "linear of 'fc.weight' (op 3)"
  DType dtype = DType::f32;  // of the value
  // A parameter ("'fc.weight'") or data ("input 0") that was not finite before the pass; then the
  // op is the first that read it. Empty: the op has made the value.
  std::string given = {};

  // A clause: "linear of 'fc.weight' (op 3) was the first to overflow, in f16".
  std::string str() const;
};

// Runs a forward pass again, which has failed, and looks at each value as it is made; the pass may
// be inside a NoGrad. Waits after each op. Empty if all values are finite.
std::optional<Overflow> first_overflow(const std::function<void()>& forward);

// Says what to do about values that are not finite, in a clause that names the option --dtype of
// programs: to compute in a dtype that has room for them. Empty if this one has all room there is.
std::string overflow_advice(DType dtype);

}  // namespace rw
