// Runs work of one kind on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <future>
#include <vector>

namespace rw {

// Calls f(0), ..., f(count - 1) on `threads` threads at once, including this one, and takes the
// numbers in order. If f throws, the exception is thrown here once all threads are done; then not
// all numbers were taken.
template <class F>
void parallel_for(size_t count, unsigned threads, const F& f) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    try {
      for (size_t i; (i = next++) < count;) f(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min<size_t>(threads, count); ++i)
    others.push_back(std::async(std::launch::async, work));
  std::exception_ptr failure;
  const auto finish = [&](const auto& part) {
    try {
      part();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  };
  finish(work);
  for (std::future<void>& other : others) finish([&] { other.get(); });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace rw
