// What this thread is doing: who allocates, for what purpose, in which phase of a training step.
// Memory reports, timelines and error messages read it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/memory_report.h"

namespace rw {

class Device;

enum class Phase : uint8_t { forward, backward, replay, update };
inline constexpr int phase_count = 4;
const char* name(Phase phase);

// What the framework does to save memory, each to be switched off for comparison.
struct Techniques {
  bool inplace = true;   // ops overwrite inputs that nobody needs
  bool segments = true;  // checkpoint segments drop and replay
};

// Device work: what running an op once costs.
struct OpCost {
  double flops = 0;
  uint64_t bytes = 0;  // read and written by its kernels

  // In FLOPs: memory traffic counts as what a GPU computes meanwhile (10 TFLOP/s at 500 GB/s).
  double total() const { return flops + 20.0 * static_cast<double>(bytes); }
};

struct Context {
  Purpose purpose = Purpose::activation;
  const char* op = "user";
  Phase phase = Phase::forward;
  int segment = -1;  // that is being recorded or replayed
  Techniques techniques;
  const Device* only = nullptr;  // in a dry run: its device; values of another one are refused
  OpCost queued;                 // by this thread, ever
};
Context& context();  // of this thread
// The op that runs, or `function` itself where a user calls it: for messages.
const char* op_or(const char* function);

// Sets one member for a scope.
template <auto Member>
class ContextScope {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Context&>().*Member)>;
  explicit ContextScope(Value value) : previous_(std::exchange(context().*Member, value)) {}
  ~ContextScope() { context().*Member = previous_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  static Value current() { return context().*Member; }

 private:
  Value previous_;
};
using PurposeScope = ContextScope<&Context::purpose>;
using OpScope = ContextScope<&Context::op>;
using PhaseScope = ContextScope<&Context::phase>;
using SegmentScope = ContextScope<&Context::segment>;
using TechniqueScope = ContextScope<&Context::techniques>;

}  // namespace rw
