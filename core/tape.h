// The tape: an append-only list of replayable records. Backward is a reverse loop over it.
//
// A record holds no closure: op.forward(attrs, inputs) can be called again at any time and gives the
// same bits; op.vjp(record, dy) is a plain function written with public ops. Only the values that
// the op declares in `saves` stay alive; edges to other values carry shape and dtype, no storage.
#pragma once

#include <any>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/tensor.h"

namespace rw {

struct Record;

// Which values an op's vjp reads: bit i = input i, output i. Only the first 32 can be saved.
struct Saves {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t taken = 0;  // of the inputs: those that the vjp takes (Record::take_input) before it makes
                       // the gradient that is as large: the planner counts on it
  bool input(size_t i) const { return i < 32 && (inputs >> i & 1); }
  bool output(size_t i) const { return i < 32 && (outputs >> i & 1); }
  bool takes(size_t i) const { return i < 32 && (taken >> i & 1); }
};

// A user's own op is the same struct as the built-in ones.
struct Op {
  const char* name;
  // Outputs from inputs. Pure: nothing but attrs and inputs decides the result, no input is changed
  // unless this call holds its last handle (reuse_or_empty). The handles stay where they are: what
  // made the inputs lives on the tape as long as they do.
  std::vector<Tensor> (*forward)(const std::any& attrs, std::span<Tensor> inputs);
  // One gradient per input from one per output (undefined = zero); undefined results mean none.
  // May move from dy. Null: not differentiable.
  std::vector<Tensor> (*vjp)(const Record& record, std::span<Tensor> dy) = nullptr;
  // `needs`: bit i is set when input i wants a gradient (of the first 32).
  Saves (*saves)(const std::any& attrs, uint32_t needs) = [](const std::any&, uint32_t) { return Saves{}; };
  // The vjp takes dy of any float dtype (casts, views): weight gradients stay f32 on their way.
  bool any_grad_dtype = false;
};

// A value as a record sees it.
struct Edge {
  uint64_t id = 0;
  int64_t record = -1;  // that made it; -1: made outside the tape
  int slot = 0;
  Shape shape;
  DType dtype = DType::f32;
  bool requires_grad = false;
  Tensor leaf;  // a leaf that collects its gradient
  uint64_t storage = 0, bytes = 0;  // id and size of its storage
  uint64_t root = 0;                // the same number for all views of one content
  int64_t released = -1;  // outputs: how many records there were when the handle died; -1: it is alive
};

// A saved value and the version that the forward read.
struct Saved {
  Tensor tensor;
  uint32_t version = 0;
  static Saved of(const Tensor& t) { return {t.detach(), t.impl().storage->version()}; }
};

struct Record {
  const Op* op = nullptr;  // null: freed
  std::any attrs;
  std::vector<Edge> inputs, outputs;
  mutable std::vector<Saved> saved_inputs;  // mutable: a vjp may take them
  std::vector<Saved> saved_outputs;
  Saves saves;
  uint32_t given = 0;         // of the first 32 inputs, those whose last handle the op was given
  bool is_last_read = false;  // no backward after the running one reads the saved values
  OpCost cost;
  int segment = -1;   // innermost checkpoint segment
  int64_t readers = 0;  // live handles on the outputs + records that read them
  std::vector<uint64_t> hashes;  // of the outputs' contents, when replays are verified

  template <class T>
  const T& attributes() const { return std::any_cast<const T&>(attrs); }
  // Saved values; AutogradError if not declared in `saves`, freed, or changed since the forward.
  const Tensor& input(int i) const;
  const Tensor& output(int i) const;
  // input(i), read for the last time: the record lets go of it where no later backward may want it,
  // so that its memory can hold the gradient that is made next.
  Tensor take_input(int i) const;
  // The gradient that leaf input i has already, or the zeros in its place (f32, dense), for the vjp to
  // add to and to return: no second one is in memory then. Undefined where there is none.
  Tensor gradient_so_far(int i) const;
  bool needs_grad(int input) const { return inputs[input].requires_grad; }
};

// The values that the record's vjp reads: body(Edge, Saved&).
template <class R, class F>
void each_saved(R& record, F&& body) {
  for (size_t k = 0; k < record.inputs.size(); ++k)
    if (record.saves.input(k)) body(record.inputs[k], record.saved_inputs[k]);
  for (size_t k = 0; k < record.outputs.size(); ++k)
    if (record.saves.output(k)) body(record.outputs[k], record.saved_outputs[k]);
}

// A value from outside a segment that its records read. Undefined while it is an inner value of an
// enclosing segment that has not been replayed.
struct External {
  Saved value;
  int64_t record = -1;  // that made it
  int64_t readers = 0;  // inputs of records that are not freed
};

// Whether a segment keeps the outputs of a record, instead of making them again.
struct SaveQuery {
  const char* op;
  OpCost cost;
  uint64_t bytes;  // of the outputs
};
using SavePolicy = std::function<bool(const SaveQuery&)>;

// An inner value of a segment that is at hand.
struct Kept {
  Saved value;
  int64_t record = -1;  // that made it
  uint64_t used = 0;    // when, by the tape's clock
};

// A range of records whose inner values are dropped when their handles die, and replayed in backward.
struct SegmentRange {
  uint64_t serial = 0;  // unlike its number never used again
  int parent = -1;
  std::vector<int> children;
  SavePolicy policy;           // empty: keeps nothing
  int64_t first = 0, last = -1;  // records [first, last); last == -1 while the scope is open
  bool replayed = false;
  int64_t alive = 0;  // records of this segment and those inside it that are not freed
  std::unordered_map<uint64_t, External> externals;  // by value id
  std::unordered_map<uint64_t, Kept> kept;           // inner values that are at hand anyway
  bool evicts = false;  // keeps what vjps read, until memory is wanted, and replays value by value

  void release();  // its records are gone

  bool contains(int64_t record) const { return record >= first && (last < 0 || record < last); }
};

struct TapeStats {
  uint64_t records = 0, saved_tensors = 0, saved_bytes = 0, segments = 0;
};

// What one checkpoint segment does, judged between forward and backward.
struct SegmentReport {
  int segment = -1, parent = -1;
  int64_t records = 0;
  uint64_t spared = 0;  // bytes that the plain run would keep and this one does not
  uint64_t held = 0;    // bytes kept only so that the segment can be replayed
  OpCost replay;        // what it adds; at most, where that was not measured
  // Most bytes alive in forward and backward, of what the tape knows, by a dry run of its records:
  // as they are, and without this segment. 0: not measured.
  uint64_t peak = 0, peak_without = 0;
  std::string problem;  // empty, or what is wrong with it, why, and what to do
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  // This thread's tape. Only its thread may use a tape; handles on its values may go anywhere, and
  // what dies with one that another thread drops goes when the tape's own thread uses it next.
  static const std::shared_ptr<Tape>& current();
  static std::shared_ptr<Tape> exchange_current(std::shared_ptr<Tape> tape);  // returns the old one

  // What the innermost open segment must do with an input: true if the value was made inside it.
  bool is_inner(const Edge& edge) const;
  bool in_segment() const { return open_ >= 0; }
  bool is_evicting() const { return open_ >= 0 && segments_[open_].evicts; }
  // Ops are recorded even where no gradient is wanted: a replay may need them.
  bool records_all() const { return open_ >= 0 || observer_ != nullptr; }
  // Appends a record and makes the outputs its products. `inputs` are the values that open segments
  // have to hold, undefined where there is nothing to hold. Called by apply only.
  void append(Record record, std::span<const Tensor> held, std::span<Tensor> outputs);

  void backward(const Tensor& root, const Tensor& gradient, bool retain);
  void take_foreign_releases();  // frees what other threads have dropped since

  // A segment by what stays true of it when the tape is cleared and numbers are used again.
  struct OpenSegment {
    int number = -1;
    uint64_t serial = 0;
  };
  OpenSegment open_segment(SavePolicy policy = {});
  OpenSegment open_evicting_segment();
  // Drops values of evicting segments until `bytes` are free; false if nothing could be dropped.
  bool evict(uint64_t bytes);
  // Closes it and what is still open inside it; nothing where it is closed already.
  void close_segment(const OpenSegment& segment);

  // Told of every op before and after it is recorded; may set segments. Null: nobody.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void before_record(Tape& tape, const Op& op) = 0;
    virtual void after_record(const Record& record) = 0;
    // Outputs of the next record that open segments keep, whatever their policies say: bit i is
    // output i.
    virtual uint32_t kept_outputs() const = 0;
  };
  Observer* observer() const { return observer_; }
  Observer* exchange_observer(Observer* observer) { return std::exchange(observer_, observer); }
  int64_t end() const { return base_ + static_cast<int64_t>(records_.size()); }  // the next record's index

  // Reads every value made in segments, in forward and again in replay, and throws AutogradError
  // naming the first op that did not give the same bits. Slow: for finding impure ops.
  void verify_replay(bool on) { verify_ = on; }

  const Record* find(int64_t index) const;  // null: freed or not recorded yet
  TapeStats stats() const;  // of what is alive now
  uint64_t evictions() const { return evictions_; }
  uint64_t replayed_records() const { return replayed_records_; }  // since the thread began
  // Of the closed segments. A segment that raises the peak, or does not lower it, has a problem: the
  // records are run again on a dry device with and without each of them (with very many records and
  // segments, with and without all of them). `loss`: what backward will start from; undefined: the
  // newest value that wants a gradient.
  std::vector<SegmentReport> segment_reports(const Tensor& loss = {}) const;
  // The next backward first hands over its segment_reports(loss). Empty: nobody wants them.
  using SegmentReceiver = std::function<void(std::vector<SegmentReport>)>;
  void report_segments(SegmentReceiver receiver) { receiver_ = std::move(receiver); }
  void clear();             // forgets everything; handles stay valid as constants

 private:
  friend struct TensorImpl;
  friend class Backward;
  friend class Replay;
  friend class Rematerializer;
  friend class TapeRerun;

  Record& at(int64_t index) { return records_[static_cast<size_t>(index - base_)]; }
  void hold(const Edge& edge, const Tensor& value);
  int maker_segment(const Edge& edge, int segment) const;
  void let_go(const Record& dead);
  void keep(const Record& record, std::span<const Tensor> outputs);
  void keep_saved(const Record& record, std::span<const Tensor> outputs);
  void release_handle(int64_t index, int slot);
  void free_records(std::vector<int64_t> worklist);
  void count_record(int segment, int64_t change);
  void forget_if_empty();

  std::deque<Record> records_;
  int64_t base_ = 0, alive_ = 0;
  std::vector<SegmentRange> segments_;
  int open_ = -1;  // innermost open segment
  Observer* observer_ = nullptr;
  SegmentReceiver receiver_;
  bool verify_ = false;
  bool running_ = false;  // inside backward
  uint64_t replayed_records_ = 0, evictions_ = 0, clock_ = 0, next_serial_ = 1;

  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex foreign_mutex_;
  std::vector<std::pair<int64_t, int>> foreign_;  // outputs whose handle another thread dropped
  std::atomic<bool> has_foreign_ = false;
};

// Runs an op: checks, computes, records if a gradient may be wanted. The one door to the tape.
// Inputs that are moved in may be overwritten when nobody else needs them.
std::vector<Tensor> apply(const Op& op, std::any attrs, std::vector<Tensor> inputs);
Tensor apply1(const Op& op, std::any attrs, std::vector<Tensor> inputs);

// op.forward. The outputs are new values even where the op hands out an input as it is.
std::vector<Tensor> run_forward(const Op& op, const std::any& attrs, std::span<Tensor> inputs);

// Whether this handle is the last one of its tensor and covers a whole storage that no other shares.
bool is_sole_owner(const Tensor& t);

// For forwards: the storage of `candidate` when this call holds its last handle and shape and dtype
// agree, else a new tensor.
Tensor reuse_or_empty(Tensor& candidate, const Shape& shape, DType dtype);

}  // namespace rw
