#include "core/base/thread_state.h"

#include <algorithm>

namespace rw {

// Found without a call in a shared library, too: ops ask for it dozens of times.
ThreadState& thread_state() {
  [[gnu::tls_model("initial-exec")]] thread_local ThreadState here;
  return here;
}

NoAutocast::~NoAutocast() {
  std::vector<const Autocast*>& open = thread_state().autocasts;
  if (!is_open_) return;
  if (const auto last = std::find(open.rbegin(), open.rend(), nullptr); last != open.rend())
    open.erase(std::next(last).base());
}

// Not inline: GCC 12 warns there of members that it takes for unset.
ThreadStateScope::~ThreadStateScope() {
  std::swap(thread_state(), previous_);
}

}  // namespace rw
