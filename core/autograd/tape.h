// The tape: an append-only list of replayable records. Backward is a reverse loop over it.
#pragma once

#include <algorithm>
#include <any>
#include <atomic>
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

// What is alive on a tape: `records`, `saved_tensors` and the `saved_bytes` of their storages (each
// counted once), `segments`.
struct TapeStats {
  uint64_t records = 0, saved_tensors = 0, saved_bytes = 0, segments = 0;
};

// The records of one thread, with their segments and hooks. Programs meet it through checkpoint(),
// backward() and the scopes of planner/follow; ops through apply().
class Tape : public Recorder, public std::enable_shared_from_this<Tape> {
 public:
  // This thread's tape. Only its thread may use a tape; handles on its values may go anywhere, and
  // what dies with one that another thread drops goes when the tape's own thread uses it next.
  static const std::shared_ptr<Tape>& current() {
    std::shared_ptr<Tape>& tape = thread_state().tape;
    if (!tape) tape = std::make_shared<Tape>();
    return tape;
  }

  // Whether a checkpoint segment is open.
  bool in_segment() const { return segments_.innermost() >= 0; }
  // Ops are recorded even where no gradient is wanted: a replay may need them.
  bool records_all() const {
    const auto wants = [](const Observer* observer) { return observer->records_all(); };
    return in_segment() || (follower_ && follower_->records_all()) ||
           std::any_of(observers_.begin(), observers_.end(), wants);
  }
  // Appends a record and makes the outputs its products, which want gradients or not. Where a
  // segment is open, what the inputs have saved goes to it. Called by apply only.
  void append(Record&& record, bool requires_grad, std::span<Tensor> outputs);

  void release_handle(int64_t index, int slot) override;
  void take_foreign_releases();  // frees what other threads have dropped since

  // Opens a segment at the next record, inside the one that is open. Use checkpoint().
  Segments::Handle open_segment(SavePolicy policy = {}, bool evicts = false);
  // Closes it and what is still open inside it; nothing where it is closed already.
  void close_segment(const Segments::Handle& segment);
  // The replay of an open segment keeps a value of the record that is appended next, for segments
  // inside that make it. Called by observers.
  void keep_in_replay(const Segments::Handle& segment, uint64_t value);

  // Sees each value that an op makes, once: a replay shows nothing. An observer may queue reads. It
  // must keep no handle, because ops check who else has one.
  class Observer {
   public:
    virtual ~Observer() = default;
    // Whether ops that want no gradient are recorded, too.
    virtual bool records_all() const { return false; }
    // `op` is about to run on these, to be recorded, and may overwrite them.
    virtual void before_forward(const Op& /*op*/, std::span<const Tensor> /*inputs*/) {}
    // The record `index` has made these.
    virtual void after_forward(int64_t /*index*/, const Record&,
                               std::span<const Tensor> /*outputs*/) {}
    // Backward starts from a tensor of this tape.
    virtual void before_backward(const Tensor& /*root*/) {}
    // The gradients of a record's outputs, whole, as its vjp is about to read them; undefined: none
    // came.
    virtual void before_vjp(int64_t /*index*/, const Record&, std::span<const Tensor> /*dy*/) {}
    // What its vjp gives to the gradients of its inputs, or has added to them (gradient_so_far).
    virtual void after_vjp(int64_t /*index*/, const Record&, std::span<const Tensor> /*dx*/) {}
  };
  // All observers are told, in the order in which they were added. An observer must live until it
  // is removed.
  void add_observer(Observer& observer) { observers_.push_back(&observer); }
  void remove_observer(const Observer& observer) { std::erase(observers_, &observer); }
  std::span<Observer* const> observers() const { return observers_; }  // added, and not removed

  // Sets segments, as ops come: there is one at most. Null: nobody.
  class Follower {
   public:
    virtual ~Follower() = default;
    // Whether ops that want no gradient are recorded, too.
    virtual bool records_all() const { return true; }
    // `op` is about to run and to be recorded.
    virtual void before_record(Tape& tape, const Op& op) = 0;
    // The record is complete, and about to be appended.
    virtual void after_record(const Record& record) = 0;
    // Outputs of the next record that open segments keep, whatever their policies say: bit i is
    // output i.
    virtual uint32_t kept_outputs() const = 0;
    // Told before backward starts from a tensor of this tape, with a gradient that the caller
    // holds; segments may still be open. `retains`: the records stay for another backward.
    virtual void before_backward(Tape&, const Tensor& /*root*/, const Tensor& /*gradient*/,
                                 bool /*retains*/) {}
    // Another is to take its place for a scope: false where it does not end what it does here.
    virtual bool give_way() { return false; }
  };
  Follower* follower() const { return follower_; }  // null: nobody
  // Sets the follower (null: none) and returns the one before.
  Follower* exchange_follower(Follower* follower) { return std::exchange(follower_, follower); }

  bool is_empty() const { return alive_ == 0; }       // nothing recorded is alive
  int64_t begin() const { return records_.begin(); }  // the oldest record's index
  int64_t end() const { return records_.end(); }      // the next record's index
  // The index of the record that comes into segments next: end(), but in enter_again().
  int64_t next() const { return again_ < 0 ? end() : again_; }

  // Reads every value made in segments, in forward and again in replay, and throws AutogradError
  // naming the first op that did not give the same bits. Slow: for finding impure ops.
  void verify_replay(bool on) { verify_ = on; }

  // The record of this index; null: freed or not recorded yet.
  const Record* find(int64_t index) const { return records_.find(index); }

  const Segments& segments() const { return segments_; }  // closed ones, too
  TapeStats stats() const;                                // of what is alive now

  // Drops values of evicting segments until `bytes` are free; false if nothing could be dropped.
  bool evict(uint64_t bytes);

  // The records of a closed segment that evicts are entered again, under the segments that `pass`
  // opens, as if these had been there from the start. `values` are all that they hold of the
  // segment, by id with the record that makes each: those that were dropped are made again.
  // OutOfMemory where that cannot be; the segment is as before then.
  void enter_again(int segment, const std::unordered_map<uint64_t, int64_t>& values,
                   Follower& pass);

  uint64_t evictions() const { return evictions_; }  // values dropped since the thread began
  uint64_t replayed_records() const { return replayed_records_; }  // run again since then

  // Called with what the next backward starts from, before it begins, once.
  void before_next_backward(std::function<void(const Tensor& root)> body) {
    before_next_backward_.push_back(std::move(body));
  }
  // Hooks on output `slot` of a record, to be called by backward.
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

// Runs an op: checks, computes, records if a gradient may be wanted. The one door to the tape.
// Inputs that are moved in may be overwritten when nobody else needs them.
std::vector<Tensor> apply(const Op& op, std::any attrs, std::vector<Tensor> inputs);
// The same for an op with one output. Inlined, as it stands between every op and what it does.
[[gnu::always_inline]] inline Tensor apply1(const Op& op, std::any attrs,
                                            std::vector<Tensor> inputs) {
  return std::move(apply(op, std::move(attrs), std::move(inputs))[0]);
}

}  // namespace rw
