// Data that a background thread prepares.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "../../core/base/error.h"

namespace rw {

// Calls `produce` on a thread of its own, ahead of the consumer by at most `depth` items.
template <class T>
class Prefetcher {
 public:
  // `produce` returns nullopt at the end.
  explicit Prefetcher(std::function<std::optional<T>()> produce, size_t depth = 2)
      : produce_(std::move(produce)), depth_(depth) {
    check(depth > 0, "Prefetcher", "depth must be positive, got {}", depth);
    thread_ = std::thread([this] { run(); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // Waits for the item being made.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The next item, or nullopt after the last one. Throws what `produce` threw, after the items
  // before it.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty() || done_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  void run() {
    std::exception_ptr error;
    try {
      while (make_one()) {
      }
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      error_ = error;
    }
    changed_.notify_all();
  }

  // False at the end, or if it was told to stop.
  bool make_one() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || items_.size() < depth_; });
      if (stop_) return false;
    }
    std::optional<T> item = produce_();
    if (!item) return false;
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(*item));
    }
    changed_.notify_all();
    return true;
  }

  const std::function<std::optional<T>()> produce_;
  const size_t depth_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<T> items_;
  std::exception_ptr error_;
  bool stop_ = false, done_ = false;
  std::thread thread_;
};

// The position of a stream of batches: `position` batches of `epoch` have been taken, in the order
// of `seed`.
struct StreamState {
  uint64_t seed = 0;
  int64_t epoch = 0, position = 0;
  bool operator==(const StreamState&) const = default;
};

// The batches of a loader, epoch after epoch without end. A stream that starts at another's state
// continues with the same batches.
template <class Source>
class BatchStream {
 public:
  // The type of a batch.
  using Batch = decltype(std::declval<Source&>().batch(0, 0));

  // Only the stream may use `source` while both live. At most `depth` batches are made ahead.
  // ValueError for a start with another seed, or beyond the batches of an epoch.
  explicit BatchStream(Source& source, size_t depth = 2)
      : BatchStream(source, StreamState{source.seed(), 0, 0}, depth) {}
  BatchStream(Source& source, StreamState start, size_t depth = 2)
      : batches_(checked_batches(source, start)),
        state_(start),
        prefetcher_(
            [&source, at = start, batches = batches_]() mutable {
              const StreamState current = at;
              advance(at, batches);
              return std::optional<Batch>(source.batch(current.epoch, current.position));
            },
            depth) {}

  // The next batch, made beforehand. Throws what the loader threw.
  Batch next() {
    std::optional<Batch> batch = prefetcher_.next();
    advance(state_, batches_);
    return std::move(*batch);
  }
  // The state of the batch that next() returns next.
  const StreamState& state() const { return state_; }

 private:
  static int64_t checked_batches(const Source& source, const StreamState& start) {
    check(start.seed == source.seed(), "BatchStream",
          "a state is of use with its own seed, got {} for a loader with {}", start.seed,
          source.seed());
    check(start.epoch >= 0 && start.position >= 0 && start.position < source.batches(),
          "BatchStream", "the position must be in [0, {}), got {} of epoch {}", source.batches(),
          start.position, start.epoch);
    return source.batches();
  }
  static void advance(StreamState& at, int64_t batches) {
    if (++at.position < batches) return;
    at.position = 0;
    ++at.epoch;
  }

  const int64_t batches_;
  StreamState state_;
  Prefetcher<Batch> prefetcher_;
};

}  // namespace rw
