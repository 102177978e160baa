#include "planner/environment.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "core/base/environment.h"
#include "core/memory/memory_report.h"
#include "planner/auto_recompute.h"
#include "planner/timeline/timeline.h"

namespace rw {

namespace {

// The settings of the environment that a training thread follows.
struct ThreadSettings {
  bool is_read = false;
  // On the heap: programs that open the library late have 1664 bytes for the thread-local storage
  // of all that they open so.
  std::unique_ptr<AutoRecompute> recompute;
  int64_t updates = 0;
  uint64_t memory = 0;  // bytes, of a Memory that is alive
};
thread_local ThreadSettings thread_settings;

}  // namespace

void set_reads_environment(bool on) {
  reads_environment = on;
}

uint64_t memory_of_thread() {
  if (context().only) return 0;
  if (thread_settings.memory > 0 || !reads_environment) return thread_settings.memory;
  const std::string bytes = env_text("REWIND_MEMORY");
  return bytes.empty() || !env_text("REWIND_MEMORY_BUDGET").empty() ? 0 : parse_bytes(bytes);
}

void set_memory_of_thread(uint64_t bytes) {
  thread_settings.memory = bytes;
}

void apply_environment() {
  if (!reads_environment || thread_settings.is_read || context().only)
    return;  // dry runs obey their callers
  thread_settings.is_read = true;
  std::optional<AutoRecomputeOptions> options =
      parse_recompute(env_text("REWIND_RECOMPUTE"), env_memory_budget());
  if (options) options->keep_8_bits = env_flag("REWIND_KEEP_8_BITS");
  const Tape& tape = *Tape::current();
  if (options && !tape.follower() && !tape.in_segment())
    thread_settings.recompute = std::make_unique<AutoRecompute>(*options);
}

// Measures the third update, since the first two make the tensors that stay.
void apply_environment_after_update(Device& device) {
  if (!reads_environment || context().only) return;
  const int64_t done = ++thread_settings.updates;
  if (done != 2 && done != 3) return;
  const std::string file = env_text("REWIND_TIMELINE");
  if (file.empty()) return;
  if (done == 2)
    device.start_trace();
  else
    write_timeline_html(file, device.stop_trace());
}

}  // namespace rw
