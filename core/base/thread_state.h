// The whole state of a thread in one place, so that dry runs can swap it.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "context.h"
#include "recycled.h"

namespace rw {

class Autocast;
class Generator;
class Lockstep;
class StatisticsExchange;
class Recorder;
class Tape;

// The state of one thread.
struct ThreadState {
  Context context;                         // its current work
  int no_grad = 0;                         // NoGrad scopes that are alive
  std::vector<const Autocast*> autocasts;  // alive ones, innermost last; null: a NoAutocast
  Lockstep* lockstep = nullptr;            // the one of which it is a part
  // Joins the batch norms of the parts of a batch, of which this thread has one; null: there is
  // only one part.
  std::shared_ptr<StatisticsExchange> statistics;
  Generator* generator = nullptr;                 // of a GeneratorScope; null: the process's
  std::optional<std::shared_ptr<Device>> device;  // of a DeviceScope; none: the process's
  std::optional<bool> checkpoints_blocks;         // empty: as the environment says
  bool boundaries_on_host = false;                // of checkpoint segments
  std::shared_ptr<Tape> tape;                     // made when it is first asked for
  Recorder* recorder = nullptr;                   // the tape, for the rooms below it
  // Writes to contents that records of checkpoint segments read: the version after the last one, by
  // Storage::contents().
  std::unordered_map<uint64_t, uint32_t> writes;
};
namespace detail {
// The calling thread's state, or null until somebody asks. Ops ask for it dozens of times, so it is
// found without a call, even in a shared library.
REWIND_QUICK_TLS extern constinit thread_local ThreadState* own_state;
ThreadState& make_own_state();
}  // namespace detail

// The calling thread's state.
inline ThreadState& thread_state() {
  return detail::own_state ? *detail::own_state : detail::make_own_state();
}
// Returns its context.
inline Context& context() {
  return thread_state().context;
}

// While it lives, this thread has another state; its end restores the settings of open scopes
// outside.
class ThreadStateScope {
 public:
  explicit ThreadStateScope(ThreadState state)
      : previous_(std::exchange(thread_state(), std::move(state))) {}
  ~ThreadStateScope();
  ThreadStateScope(const ThreadStateScope&) = delete;
  ThreadStateScope& operator=(const ThreadStateScope&) = delete;

 private:
  ThreadState previous_;
};

// While it lives, nothing is autocast on this thread: ops inside ops, replays and gradients keep
// the dtypes that were recorded. Scopes may end in any order.
class NoAutocast {
 public:
  NoAutocast() : is_open_(!thread_state().autocasts.empty()) {
    if (is_open_) open();
  }
  ~NoAutocast() {
    if (is_open_) close();
  }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  static void open();
  static void close();
  const bool is_open_;
};

// Sets one member of the context for a scope.
template <auto Member>
class ContextScope {
 public:
  // The member's type.
  using Value = std::remove_reference_t<decltype(std::declval<Context&>().*Member)>;

  explicit ContextScope(Value value) : previous_(std::exchange(context().*Member, value)) {}
  ~ContextScope() { context().*Member = previous_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  // The current value of the member.
  static Value current() { return context().*Member; }

 private:
  Value previous_;
};
// A scope type for each member.
using PurposeScope = ContextScope<&Context::purpose>;
using OpScope = ContextScope<&Context::op>;
using PhaseScope = ContextScope<&Context::phase>;
using SegmentScope = ContextScope<&Context::segment>;
using PlaceScope = ContextScope<&Context::place>;
using WorkScope = ContextScope<&Context::works>;
using OverwriteScope = ContextScope<&Context::overwrites>;
using DropScope = ContextScope<&Context::drops_segments>;

// While it lives, the kernels of this thread are run by the host's processor, at once, and what it
// allocates lies in host memory, as all that these kernels use must. The caller has waited for the
// work that was queued on it before (Device::mark()).
class HostWorkScope {
 public:
  // Whether one is alive on this thread.
  static bool is_open() { return context().works == MemoryPlace::host; }

 private:
  PlaceScope place_{MemoryPlace::host};
  WorkScope works_{MemoryPlace::host};
};

}  // namespace rw
