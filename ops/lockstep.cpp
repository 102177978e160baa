#include "ops/lockstep.h"

#include <numeric>
#include <thread>
#include <utility>

#include "core/autograd/boundaries.h"
#include "core/base/error.h"
#include "core/base/thread_state.h"
#include "core/memory/default_device.h"
#include "ops/operators.h"

namespace rw {

namespace {

// Smaller activations, as statistics of channels are, stay on the device while their part waits.
constexpr uint64_t least_parked_bytes = 16 << 10;

// Unwinds a part because another one failed.
struct Abandoned {};

}  // namespace

struct Lockstep::Part {
  bool has_ended = false;
  size_t meetings = 0;
  const char* last = "";  // the purpose of the last meeting
};

// The parts leave their values here until all have arrived; the first part to continue joins them.
class Lockstep::Exchange : public StatisticsExchange {
 public:
  explicit Exchange(Lockstep& all) : all_(all) {}

  int64_t rows(int64_t own) override {
    return join(rows_, own, "the rows of a batch_norm", [](const std::vector<int64_t>& all) {
      return std::accumulate(all.begin(), all.end(), int64_t{0});
    });
  }

  BatchStatistics combine(BatchStatistics own) override {
    return join(statistics_, std::move(own), "the statistics of a batch_norm", combine_statistics);
  }

  Tensor sum(Tensor own) override {
    return join(sums_, std::move(own), "the gradient of a batch_norm", [](std::vector<Tensor> all) {
      Tensor total = std::move(all[0]);
      for (size_t i = 1; i < all.size(); ++i) total = std::move(total) + std::move(all[i]);
      return total;
    });
  }

  // Parts share their modules.
  void update(const RunningStatistics& running, const BatchStatistics& batch) override {
    if (is_first()) update_running(running, batch);
  }

 private:
  template <class T>
  struct Meeting {
    std::vector<T> own;  // by part
    T joined = {};
  };
  template <class T, class F>
  T join(Meeting<T>& meeting, T own, const char* what, const F& joined_of) {
    meeting.own.resize(all_.parts());
    meeting.own[part()] = std::move(own);
    all_.meet(what);
    if (is_first()) meeting.joined = joined_of(std::exchange(meeting.own, {}));
    const bool is_last = part() + 1 == all_.parts();  // it takes it away
    return is_last ? std::exchange(meeting.joined, {}) : meeting.joined;
  }
  uint32_t part() const { return all_.turn_; }
  bool is_first() const { return part() == 0; }

  Lockstep& all_;
  Meeting<int64_t> rows_;
  Meeting<BatchStatistics> statistics_;
  Meeting<Tensor> sums_;
};

Lockstep::Lockstep(uint32_t parts) : count_(parts), parts_(parts) {
  check(parts > 0, "lockstep", "at least one part is needed, got 0");
}

Lockstep::~Lockstep() = default;

void Lockstep::run(const std::function<void(uint32_t part)>& body) {
  check<AutogradError>(!thread_state().lockstep, "lockstep",
                       "parts cannot be divided again: run() must not be called inside another");
  std::fill(parts_.begin(), parts_.end(), Part());
  exchange_ = std::make_shared<Exchange>(*this);
  turn_ = 0;
  failure_ = nullptr;
  parks_ = boundaries_on_host();
  age_ = Storage::newest();
  ThreadState state = thread_state();
  state.lockstep = this;
  state.statistics = exchange_;
  state.tape = nullptr;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < parts(); ++i)
    threads.emplace_back([&, i] {
      thread_state() = state;
      live(i, body);
      thread_state() = {};
    });
  for (std::thread& t : threads) t.join();
  exchange_ = nullptr;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Lockstep::live(uint32_t part, const std::function<void(uint32_t)>& body) {
  try {
    wait_for_turn(part);
    body(part);
    for (const Part& other : parts_)
      check<AutogradError>(!other.has_ended || other.meetings == parts_[part].meetings, "lockstep",
                           "all parts must run the same ops, but one ended after {} meetings "
                           "and part {} after {}",
                           other.meetings, part, parts_[part].meetings);
  } catch (const Abandoned&) {
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  // The part's tape ends while it is the part's turn, so that its memory is freed in a fixed order.
  thread_state().tape = nullptr;
  parts_[part].has_ended = true;
  pass_on(part);
}

void Lockstep::wait_for_turn(uint32_t part) {
  std::unique_lock lock(mutex_);
  turned_.wait(lock, [&] { return turn_ == part; });
  if (failure_) throw Abandoned();
}

// Passes the turn to the next part that has not ended.
void Lockstep::pass_on(uint32_t part) {
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 1; i <= parts(); ++i) {
    turn_ = (part + i) % parts();
    if (!parts_[turn_].has_ended) break;
  }
  turned_.notify_all();
}

void Lockstep::meet(const char* what) {
  const uint32_t part = turn_;
  Part& mine = parts_[part];
  mine.last = what;
  ++mine.meetings;
  if (parks_) default_device()->activations_to_host(age_, least_parked_bytes);
  pass_on(part);
  wait_for_turn(part);
  for (const Part& other : parts_)
    check<AutogradError>(
        other.meetings >= mine.meetings && (other.meetings > mine.meetings || other.last == what),
        "lockstep", "all parts must run the same ops, but one came with {} and another with {}",
        what, other.has_ended ? "nothing more" : other.last);
}

}  // namespace rw
