#include "data/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rw {

void parallel_for(size_t n, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;  // guards what follows
  std::exception_ptr error;
  size_t failed = n;
  const auto run = [&] {
    // Numbers below a failed one have begun before it, and run to their end.
    for (size_t i = next++; i < n && !stop; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        stop = true;
        if (i < failed) error = std::current_exception();
        failed = std::min(failed, i);
      }
    }
  };
  const unsigned wanted = threads > 0 ? static_cast<unsigned>(threads)
                                      : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min<size_t>(wanted, n); ++i) helpers.emplace_back(run);
  run();
  helpers.clear();  // waits
  if (error) std::rethrow_exception(error);
}

}  // namespace rw
