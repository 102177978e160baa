// NumericsMonitor: names the first op, tensor and step whose values overflowed or went denormal.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../core/autograd/tape.h"
#include "numerics_report.h"

namespace rw {

// The options of a monitor.
struct MonitorOptions {
  uint32_t every = 1;      // the steps of one update in so many are watched
  uint32_t values = 4096;  // most values to tell apart; each takes 96 bytes of the device
};

// Watches the values of training steps while it lives: the outputs of recorded ops, what comes into
// them from outside, and the gradients in backward. Each is counted by a small kernel where it is
// made and stays a row of numbers on the device: no step waits, no value changes, and what a
// checkpoint segment replays is not counted again. Views are not looked at.
//   NumericsMonitor monitor(optimizer);
//   ...  // training steps on this thread
//   std::cout << diagnose(optimizer, monitor.report());
class NumericsMonitor : public Tape::Observer {
 public:
  // Watches this thread's tape and the updates of an optimizer. With Accumulate, a micro-batch is a
  // step. ValueError for options of 0.
  explicit NumericsMonitor(Optimizer& optimizer, const MonitorOptions& options = {});
  ~NumericsMonitor() override;
  NumericsMonitor(const NumericsMonitor&) = delete;
  NumericsMonitor& operator=(const NumericsMonitor&) = delete;

  NumericsReport report();  // of the backward passes that are over. Waits

  void before_forward(const Op& op, std::span<const Tensor> inputs) override;
  void after_forward(int64_t index, const Record& record, std::span<const Tensor> outputs) override;
  void before_vjp(int64_t index, const Record& record, std::span<const Tensor> dy) override;
  void after_vjp(int64_t index, const Record& record, std::span<const Tensor> dx) override;

 private:
  class Updates;
  // Identifies a value by the place where a pass makes it: it is the same in every step of a
  // program that repeats.
  struct ValueKey {
    bool is_backward = false;
    int64_t order = 0;  // of the record in the pass; in backward negative
    ValueKind kind = ValueKind::output;
    size_t slot = 0;
    const Op* op = nullptr;
    auto operator<=>(const ValueKey&) const = default;
  };
  struct Value {
    int64_t row = 0;
    bool is_new = true;
    ValueHistory what = {};  // without words
  };

  bool is_watching() const { return is_in_pass_ && is_watched_; }
  void begin_pass();
  void end_pass();
  void begin_backward(int64_t index, const Record& loss);
  // Queues counting x. Returns the history to describe if it is new, else null.
  ValueHistory* count(const ValueKey& key, const Tensor& x);
  std::string name_of(const Edge& edge) const;
  void name_output(const Record& record);
  std::string described(int64_t index, const Record& record) const;
  void note_maker(const Edge& output, int64_t index, const Record& record);

  const MonitorOptions options_;
  const std::shared_ptr<Tape> tape_;
  const std::shared_ptr<Updates> updates_;
  Tensor control_;         // the optimizer's
  Tensor rows_, history_;  // i32 [values, RANGE_SIZE], [values, HISTORY_SIZE]
  std::map<ValueKey, Value> values_;
  uint64_t left_out_ = 0;
  uint32_t step_ = 0;           // backward passes so far
  uint64_t watched_steps_ = 0;  // of them

  // The pass: a forward with its backward.
  bool is_in_pass_ = false, is_watched_ = false, is_backward_ = false, has_counts_ = false;
  int64_t first_ = 0;                                // its first record
  std::unordered_set<uint64_t> inputs_;              // ids of those that were counted
  std::unordered_map<uint64_t, std::string> names_;  // of casts and views of parameters, by id
  std::map<std::pair<int64_t, int>, std::string> makers_;  // of the gradient of an output
};

}  // namespace rw
