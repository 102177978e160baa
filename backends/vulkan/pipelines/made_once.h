// Objects that take long to make, and are made once: by the first thread that asks for one, or by
// threads that work ahead of the calls. Contains no Vulkan.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace rw::vulkan {

template <class Key, class Value>
class MadeOnce {
 public:
  // Several threads call `make` at once.
  explicit MadeOnce(std::function<Value(const Key&)> make) : make_(std::move(make)) {}
  ~MadeOnce() { stop(); }
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  // Returns the value, and makes it if it does not exist. While another thread makes it, this one
  // helps to make others ahead, and then waits. Exceptions of `make` are passed on, and the next
  // thread that asks makes the value again.
  Value get(const Key& key) {
    std::unique_lock lock(mutex_);
    for (bool helps = true;;) {
      const auto [entry, is_new] = all_.try_emplace(key);
      if (is_new) return make(key, lock);
      if (entry->second) return *entry->second;
      if (helps) {
        lock.unlock();
        helps = make_next();
        lock.lock();
      } else {
        changed_.wait(lock);
      }
    }
  }

  // Starts this many threads, which make the values that nobody has asked for yet, in order. A
  // value that cannot be made is left to whoever asks for it. Call it once.
  void make_ahead(std::vector<Key> keys, size_t threads) {
    ahead_ = std::move(keys);
    for (size_t i = 0; i < std::min(threads, ahead_.size()); ++i)
      threads_.emplace_back([this] {
        while (!stops_ && make_next()) {
        }
      });
  }
  // Waits for the threads, which finish what they are making.
  void stop() {
    stops_ = true;
    threads_.clear();
  }

  size_t made() const { return made_; }  // so far, by any thread
  // Visits all of them, while no thread makes one.
  template <class F>
  void for_each(F&& f) {
    for (const auto& [key, value] : all_)
      if (value) f(*value);
  }

 private:
  // Returns false at the end of the list.
  bool make_next() {
    const size_t next = next_++;
    if (next >= ahead_.size()) return false;
    std::unique_lock lock(mutex_);
    if (all_.try_emplace(ahead_[next]).second) try {
        make(ahead_[next], lock);
      } catch (...) {  // get() will throw the same
      }
    return true;
  }

  // The entry exists, and is empty until it is done.
  Value make(const Key& key, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    try {
      Value value = make_(key);
      lock.lock();
      all_[key] = value;
      ++made_;
      changed_.notify_all();
      return value;
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      all_.erase(key);
      changed_.notify_all();
      throw;
    }
  }

  const std::function<Value(const Key&)> make_;
  std::mutex mutex_;  // of all_
  std::condition_variable changed_;
  std::map<Key, std::optional<Value>> all_;  // empty: a thread makes it
  std::atomic<size_t> made_ = 0;

  std::vector<Key> ahead_;  // not changed while threads run
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stops_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace rw::vulkan
