#include "core/base/thread_state.h"

#include <algorithm>

namespace rw {

constinit thread_local ThreadState* detail::own_state = nullptr;

ThreadState& detail::make_own_state() {
  thread_local ThreadState here;
  own_state = &here;
  return here;
}

void NoAutocast::open() {
  thread_state().autocasts.push_back(nullptr);
}

void NoAutocast::close() {
  std::vector<const Autocast*>& open = thread_state().autocasts;
  if (const auto last = std::find(open.rbegin(), open.rend(), nullptr); last != open.rend())
    open.erase(std::next(last).base());
}

// This is not inline: GCC 12 would warn of members that it takes for uninitialized.
ThreadStateScope::~ThreadStateScope() {
  std::swap(thread_state(), previous_);
}

}  // namespace rw
