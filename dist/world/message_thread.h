// The thread that sends messages while the training thread continues.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace rw {

// Runs jobs in the order in which they are given, on one thread of its own, which the first job
// starts. After a job that throws, it runs no other.
class MessageThread {
 public:
  using Job = std::function<void()>;

  MessageThread() = default;
  ~MessageThread();  // when all are done
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;

  // Adds a job and returns its number; the first one has 1.
  uint64_t add(Job job);
  // Waits for job number `job` (0: does not wait) and returns the seconds. Throws what a job has
  // thrown.
  double wait(uint64_t job);
  // The number of the last job, as the thread that adds jobs knows it.
  uint64_t added() const { return added_; }
  void wait_for_all() { wait(added()); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t added_ = 0, done_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace rw
