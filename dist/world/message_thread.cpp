#include "dist/world/message_thread.h"

#include <chrono>
#include <utility>

namespace rw {

MessageThread::~MessageThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

uint64_t MessageThread::add(Job job) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return ++added_;
}

double MessageThread::wait(uint64_t job) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= job || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void MessageThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (failure_) continue;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace rw
