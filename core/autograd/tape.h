// The tape: an append-only list of replayable records. Backward is a reverse loop over it.
#pragma once

#include <algorithm>
#include <any>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../tensor/tensor.h"
#include "records.h"
#include "segments.h"

namespace rw {

// The live parts of a tape: `records`, `saved_tensors` and the `saved_bytes` of their storages
// (each counted once), `segments`.
struct TapeStats {
  uint64_t records = 0, saved_tensors = 0, saved_bytes = 0, segments = 0;
};

// The records of one thread, with their segments and hooks. Programs use it through checkpoint(),
// backward() and the scopes of planner/follow, and ops through apply().
class Tape : public Recorder, public std::enable_shared_from_this<Tape> {
 public:
  // This thread's tape. Only its thread may use a tape. Handles on its values may go anywhere;
  // records that another thread's last handle would free are freed when the tape's own thread next
  // uses it.
  static const std::shared_ptr<Tape>& current() {
    std::shared_ptr<Tape>& tape = thread_state().tape;
    if (!tape) thread_state().recorder = (tape = std::make_shared<Tape>()).get();
    return tape;
  }

  // Called before a thread's first record, if the planner has set it.
  static inline void (*before_first_record)() = nullptr;

  // Tells whether a checkpoint segment is open.
  bool in_segment() const { return segments_.innermost() >= 0; }
  // Tells whether ops are recorded even if no gradient is needed, because a replay may need them.
  bool records_all() const {
    const auto wants = [](const Observer* observer) { return observer->records_all(); };
    return in_segment() || (follower_ && follower_->records_all()) ||
           std::any_of(observers_.begin(), observers_.end(), wants);
  }
  // Appends a record and makes the outputs, which may need gradients or not, its products. If a
  // segment is open, it gets the saved inputs. Called only by apply.
  void append(Record&& record, bool requires_grad, std::span<Tensor> outputs);

  void release_handle(int64_t index, int slot) override;
  void before_write(Storage& storage) override;
  void take_foreign_releases();  // frees records whose handles other threads have dropped

  // Opens a segment at the next record, inside the one that is open. Use checkpoint().
  Segments::Handle open_segment(SavePolicy policy = {}, bool evicts = false);
  // Closes it and everything inside it that is still open; does nothing if it is closed already.
  void close_segment(const Segments::Handle& segment);
  // Makes the replay of an open segment keep a value of the record that is appended next, for inner
  // segments that make it. Called by observers.
  void keep_in_replay(const Segments::Handle& segment, const ValueKey& value);

  // Sees each value that an op makes, once; a replay shows nothing. An observer may queue reads. It
  // must keep no handle, because ops check who else has one.
  class Observer {
   public:
    virtual ~Observer() = default;
    // Tells whether ops that need no gradient are recorded, too.
    virtual bool records_all() const { return false; }
    // `op` is about to run on these inputs, to be recorded, and may overwrite them.
    virtual void before_forward(const Op& /*op*/, std::span<const Tensor> /*inputs*/) {}
    // The record `index` has made these outputs.
    virtual void after_forward(int64_t /*index*/, const Record&,
                               std::span<const Tensor> /*outputs*/) {}
    // Backward starts from a tensor of this tape.
    virtual void before_backward(const Tensor& /*root*/) {}
    // Sees the complete gradients of a record's outputs just before its vjp reads them; undefined
    // if there are none.
    virtual void before_vjp(int64_t /*index*/, const Record&, std::span<const Tensor> /*dy*/) {}
    // Sees the gradients of its inputs that its vjp returns, or has added to (gradient_so_far).
    virtual void after_vjp(int64_t /*index*/, const Record&, std::span<const Tensor> /*dx*/) {}
  };
  // Notifies all observers, in the order in which they were added. An observer must live until it
  // is removed.
  void add_observer(Observer& observer) { observers_.push_back(&observer); }
  void remove_observer(const Observer& observer) { std::erase(observers_, &observer); }
  // The observers that were added and not removed.
  std::span<Observer* const> observers() const { return observers_; }

  // Sets segments as ops arrive; there is at most one follower. Null if there is none.
  class Follower {
   public:
    virtual ~Follower() = default;
    // Tells whether ops that need no gradient are recorded, too.
    virtual bool records_all() const { return true; }
    // `op` is about to run and to be recorded.
    virtual void before_record(Tape& tape, const Op& op) = 0;
    // The record is complete, and about to be appended. In enter_again() those of its outputs are
    // undefined that do not exist.
    virtual void after_record(const Record& record, std::span<const Tensor> outputs) = 0;
    // The outputs of the next record that open segments keep, whatever their policies say: bit i is
    // output i.
    virtual uint32_t kept_outputs() const = 0;
    // Called before backward starts from a tensor of this tape, with a gradient that the caller
    // holds; segments may still be open. `retains` says that the records stay for another backward.
    virtual void before_backward(Tape&, const Tensor& /*root*/, const Tensor& /*gradient*/,
                                 bool /*retains*/) {}
    // Asks it to give way to another follower for a scope; false if it does not end its work here.
    virtual bool give_way() { return false; }
  };
  Follower* follower() const { return follower_; }  // null: there is none
  // Sets the follower (or none, if null) and returns the previous one.
  Follower* exchange_follower(Follower* follower) { return std::exchange(follower_, follower); }

  bool is_empty() const { return alive_ == 0; }       // nothing recorded is alive
  int64_t begin() const { return records_.begin(); }  // the oldest record's index
  int64_t end() const { return records_.end(); }      // the next record's index
  // Returns the index of the record that enters segments next: end(), except in enter_again().
  int64_t next() const { return again_ < 0 ? end() : again_; }

  // Reads every value made in segments, in forward and again in replay, and throws an AutogradError
  // with the first op that did not give the same bits. It is slow, for finding impure ops.
  void verify_replay(bool on) { verify_ = on; }

  // Tells whether no replay can make the value of an input: its record is freed, or the program has
  // written into it since.
  bool is_only_copy(const Edge& input) const;

  // Returns the record with this index; null if it was freed or not recorded yet.
  const Record* find(int64_t index) const { return records_.find(index); }

  const Segments& segments() const { return segments_; }  // closed ones, too
  TapeStats stats() const;                                // of everything that is alive now

  // Drops values of evicting segments until `bytes` are free; false if nothing could be dropped.
  bool evict(uint64_t bytes);

  // Enters the records of a closed segment that evicts again, under the segments that `pass` opens,
  // as if these had been there from the start. `values` are all values that they hold of the
  // segment, by id with the record that makes each; those that were dropped are made again. Throws
  // OutOfMemory if that is impossible; the segment is then as before.
  void enter_again(int segment, const ByValue<int64_t>& values, Follower& pass);

  uint64_t evictions() const { return evictions_; }  // values dropped since the thread began
  // Records that ran again since then.
  uint64_t replayed_records() const { return replayed_records_; }

  // Calls `body` once before the next backward begins, with the tensor from which it starts.
  void before_next_backward(std::function<void(const Tensor& root)> body) {
    before_next_backward_.push_back(std::move(body));
  }
  // The hooks on output `slot` of a record, which backward calls.
  const std::shared_ptr<GradHooks>& hooks(int64_t index, int slot);

  void clear();  // forgets everything; handles stay valid as constants

 private:
  friend class Backward;

  void enter(const Record& record, std::span<const Tensor> outputs, Follower* follower);
  void free_records(std::vector<int64_t> worklist);
  void free_hooks(int64_t index);
  void count_record(const Record& record, int64_t change);
  void forget_if_empty();

  Records records_;
  int64_t alive_ = 0;
  Segments segments_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<GradHooks>> hooks_;
  std::vector<Observer*> observers_;
  Follower* follower_ = nullptr;
  std::vector<std::function<void(const Tensor&)>> before_next_backward_;
  bool verify_ = false;
  bool running_ = false;  // inside backward
  int64_t again_ = -1;    // the record that is entered again; -1: none
  uint64_t replayed_records_ = 0, evictions_ = 0;

  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex foreign_mutex_;
  std::vector<std::pair<int64_t, int>> foreign_;  // outputs whose handle another thread dropped
  std::atomic<bool> has_foreign_ = false;
};

// Runs an op: checks, computes, and records it if a gradient may be needed. This is the one door to
// the tape. Inputs that are moved in may be overwritten if nobody else needs them.
std::vector<Tensor> apply(const Op& op, std::any attrs, std::vector<Tensor> inputs);
// The same for an op with one output.
Tensor apply1(const Op& op, std::any attrs, std::vector<Tensor> inputs);

namespace detail {
// Runs an op on handles that the caller owns and drops when it returns.
std::vector<Tensor> apply_to(const Op& op, std::any&& attrs, std::span<Tensor> inputs);
}  // namespace detail
// The same as apply1() for a known number of inputs, which need no list. Inlined, since it stands
// between every op and its work.
template <std::same_as<Tensor>... T>
requires(sizeof...(T) > 0) [[gnu::always_inline]] inline Tensor
    apply1(const Op& op, std::any attrs, T... inputs) {
  Tensor list[] = {std::move(inputs)...};
  return std::move(detail::apply_to(op, std::move(attrs), list)[0]);
}

}  // namespace rw
