// The observations of a NumericsMonitor, and what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../base/optimizer.h"

namespace rw {

// The origin of a value.
enum class ValueKind : uint8_t {
  input,              // given to an op from outside: data, or a parameter
  output,             // of an op in forward
  gradient,           // of an op's output
  parameter_gradient  // of a parameter, or another leaf
};

// A value that was out of range, and the first step in which it was.
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

  std::string str() const;  // the event and the advice, a sentence each
};

// The observations of a monitor.
struct NumericsReport {
  uint64_t steps = 0;     // the number of watched steps
  uint64_t values = 0;    // the number of values that were told apart
  uint64_t left_out = 0;  // times that a value had no row

  // The first value that was not finite in the first step whose loss or parameters' gradients were
  // not finite. Values that are never finite are passed over if other steps went well with them.
  std::optional<NumericsFinding> overflow;
  // The first 16-bit value most of whose nonzero elements were denormal; a gradient if there is
  // one, since the loss scale is about gradients.
  std::optional<NumericsFinding> underflow;
  // The first 16-bit gradient that has only zeros in every step, after others that had more.
  std::optional<NumericsFinding> vanished;
  // Values that were not finite while losses and gradients were, such as masks of -infinity.
  std::vector<std::string> harmless;
  // 16-bit gradients, and those that were mostly denormal in most steps.
  uint64_t gradients = 0, denormal_gradients = 0;

  std::string str() const;  // a line for each
};

// A value, and its history in words.
struct ValueHistory {
  // As in NumericsFinding.
  ValueKind kind = ValueKind::output;
  std::string op, tensor;
  int segment = -1;                // -1: none
  DType dtype = DType::f32;        // of the value, in the last step
  bool is_result = false;          // the loss, or a parameter's gradient
  std::span<const int32_t> words;  // [HISTORY_SIZE], see shaders/params/optim.h
};
// The report of values in the order in which a step makes them; `steps` and `left_out` are not set.
NumericsReport numerics_report(const std::vector<ValueHistory>& values);

// Explains the history of the loss scale together with the observations of a monitor of this
// optimizer. Waits for the device.
std::string diagnose(const Optimizer& optimizer, const NumericsReport& report);

}  // namespace rw
