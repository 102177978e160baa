// What a NumericsMonitor has seen, and what it means.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../base/optimizer.h"

namespace rw {

// Where a value comes from.
enum class ValueKind : uint8_t {
  input,              // given to an op from outside: data, or a parameter
  output,             // of an op in forward
  gradient,           // of an op's output
  parameter_gradient  // of a parameter, or another leaf
};

// A value that was out of range, in the first step where it was.
struct NumericsFinding {
  ValueKind kind = ValueKind::output;  // where it comes from
  uint64_t step = 0;                   // from 1: backward passes since the monitor was made
  uint64_t update = 0;       // from 1, with those that were skipped: the one that this step was for
  std::string op;            // whose result it is; of a gradient, the op whose vjp made it
  std::string tensor;        // "output 0", "input 1 'fc.weight'", "gradient of 'fc.weight'"
  int segment = -1;          // checkpoint segment of its record; -1: none
  DType dtype = DType::f32;  // of the value
  float scale = 1;           // the loss scale in that step
  // The counts of its elements then: an overflow has the first two, an underflow the others.
  uint64_t nans = 0, infinities = 0, denormals = 0, normals = 0;

  std::string str() const;  // what it was and what to do about it, a sentence each
};

// What a monitor has seen.
struct NumericsReport {
  uint64_t steps = 0;     // that were watched
  uint64_t values = 0;    // that were told apart
  uint64_t left_out = 0;  // times that a value had no row

  // In the first step whose loss or parameters' gradients were not finite: the first value that was
  // not. Those that never are are passed over, where other steps went well with them.
  std::optional<NumericsFinding> overflow;
  // The first 16-bit value of which most elements that are not 0 were denormal; a gradient, where
  // there is one, as the loss scale is about these.
  std::optional<NumericsFinding> underflow;
  // The first 16-bit gradient with nothing but zeros in every step, after some that had more.
  std::optional<NumericsFinding> vanished;
  // Values that were not finite while losses and gradients were, as masks of -infinity are.
  std::vector<std::string> harmless;
  // 16-bit gradients, and those that were mostly denormal in most steps.
  uint64_t gradients = 0, denormal_gradients = 0;

  std::string str() const;  // a line for each
};

// A value and the words of its history.
struct ValueHistory {
  // As NumericsFinding has them.
  ValueKind kind = ValueKind::output;
  std::string op, tensor;
  int segment = -1;                // -1: none
  DType dtype = DType::f32;        // of the value, in the last step
  bool is_result = false;          // the loss, or a parameter's gradient
  std::span<const int32_t> words;  // [HISTORY_SIZE], see shaders/params/optim.h
};
// The report of values in the order in which a step makes them; `steps` and `left_out` are not set.
NumericsReport numerics_report(const std::vector<ValueHistory>& values);

// What the loss scale's history means, with what a monitor of this optimizer has seen. Waits.
std::string diagnose(const Optimizer& optimizer, const NumericsReport& report);

}  // namespace rw
