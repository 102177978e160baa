#include "rewind/core/base/thread_state.h"

#include <algorithm>
#include <string_view>

namespace rw {

ThreadState& thread_state() {
  thread_local ThreadState here;
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

const char* op_or(const char* function) {
  static const std::string_view nobody = Context{}.op;
  return context().op == nobody ? function : context().op;
}

}  // namespace rw
