// A mutex that the thread which holds it may lock again, at the price of a comparison.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "thread_state.h"

namespace rw {

// Like std::recursive_mutex, which takes as many instructions for the second lock as for the first.
class OwnedMutex {
 public:
  void lock() {                                              // waits while another thread holds it
    if (owner_.load(std::memory_order_relaxed) == self()) {  // nobody else can have written that
      ++depth_;
      return;
    }
    mutex_.lock();
    owner_.store(self(), std::memory_order_relaxed);
  }
  void unlock() {  // once for each lock()
    if (depth_ > 0) {
      --depth_;
      return;
    }
    owner_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  // Returns an address that no other living thread has.
  static const void* self() { return &detail::own_state; }

  std::mutex mutex_;
  std::atomic<const void*> owner_ = nullptr;  // the thread that holds it
  uint32_t depth_ = 0;                        // locks of that thread beyond the first
};

}  // namespace rw
