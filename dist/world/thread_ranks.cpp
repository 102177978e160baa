#include "dist/world/thread_ranks.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/base/thread_state.h"

namespace rw {

namespace {

// Unwinds a rank because another one failed.
struct Abandoned {};

// The state that the ranks of one run_ranks() share.
class Table {
 public:
  explicit Table(int size) : given_(static_cast<size_t>(size)) {}

  // Waits until all ranks have arrived; the last one lets all continue.
  void meet() {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    if (++arrived_ == given_.size()) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || failure_; });
    if (round_ == round) throw Abandoned();
  }

  // `take(r, bytes)` receives what rank r gives, which must be `expected(r)` bytes.
  template <class Expected, class Take>
  void exchange(int rank, std::span<const std::byte> own, const Expected& expected,
                const Take& take) {
    given_[static_cast<size_t>(rank)] = own;
    meet();
    bool agrees = true;
    for (size_t r = 0; r < given_.size(); ++r) agrees &= given_[r].size() == expected(r);
    for (size_t r = 0; agrees && r < given_.size(); ++r) take(r, given_[r]);
    meet();
    check<RankError>(agrees, "ranks",
                     "all ranks must give as many bytes as the others expect, got {} of this one",
                     own.size());
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    changed_.notify_all();
  }
  std::exception_ptr failure() const { return failure_; }

 private:
  std::vector<std::span<const std::byte>> given_;  // by rank
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  std::exception_ptr failure_;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Table& table, int rank, int size) : table_(table), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string str() const override { return "threads of one process"; }

  void all_to_all(std::span<const std::byte> to, std::span<const size_t> sizes,
                  std::span<std::byte> from) override {
    const size_t own = sizes[static_cast<size_t>(rank_)];
    const size_t begin = std::accumulate(sizes.begin(), sizes.begin() + rank_, size_t{0});
    table_.exchange(
        rank_, to, [&](size_t) { return to.size(); },
        [&](size_t r, std::span<const std::byte> given) {
          std::ranges::copy(given.subspan(begin, own), from.subspan(r * own).begin());
        });
  }
  void all_gather(std::span<const std::byte> own, std::span<const size_t> sizes,
                  std::span<std::byte> all) override {
    size_t at = 0;
    table_.exchange(
        rank_, own, [&](size_t r) { return sizes[r]; },
        [&](size_t, std::span<const std::byte> given) {
          std::ranges::copy(given, all.subspan(at).begin());
          at += given.size();
        });
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    table_.exchange(
        rank_, bytes, [&](size_t) { return bytes.size(); },
        [&](size_t r, std::span<const std::byte> given) {
          if (r == static_cast<size_t>(root) && rank_ != root)
            std::ranges::copy(given, bytes.begin());
        });
  }
  [[noreturn]] void abort(int status) override {
    rw::fail<RankError>("ranks", "a rank ended all of them, with status {}", status);
  }

 private:
  Table& table_;
  const int rank_, size_;
};

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& body) {
  check(size > 0, "ranks", "at least one rank is needed, got {}", size);
  Table table(size);
  ThreadState state = thread_state();
  state.tape = nullptr;
  const Generator start = default_generator();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      thread_state() = state;
      try {
        const GeneratorScope generator(start);
        ThreadRank own(table, rank, size);
        body(own);
      } catch (const Abandoned&) {
      } catch (...) {
        table.fail(std::current_exception());
      }
      thread_state() = {};
    });
  for (std::thread& thread : threads) thread.join();
  if (table.failure()) std::rethrow_exception(table.failure());
}

}  // namespace rw
