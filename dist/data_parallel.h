// Data parallel training: ranks share one model, each has its own micro-batches, and there is one
// update for all.
#pragma once

#include <memory>
#include <optional>

#include "../ops/statistics.h"
#include "../optim/accumulation/accumulate.h"
#include "traffic.h"
#include "world/world.h"

namespace rw {

// How ranks train together.
struct DataParallelOptions {
  // Whether BatchNorm2d normalises over the rows of all ranks, forward and backward, as in one
  // large batch. Ranks then wait for each other in each of them, so every rank must run all its
  // steps. Otherwise it normalises over the rows of its rank; running statistics take in all ranks
  // either way.
  bool exact_batch_norm = false;
  // The most bytes of f32 gradients in one message. Gradients leave while backward runs, as soon as
  // this many are complete, and free their memory: large buckets cost memory, small ones messages.
  // With exact_batch_norm they leave after backward.
  int64_t bucket_bytes = int64_t{8} << 20;
  // The dtype of gradients in messages: f16 or bf16 halves them. Sums are f32 all the same, and
  // come back as f32. With f32 the bits are those of one process; otherwise every gradient is
  // rounded once, by at most 2^-11 or 2^-8 of itself (f16 below 6e-5: by 3e-8), and a gradient that
  // f16 cannot hold is an overflow.
  DType transport = DType::f32;
  // The most bytes of sharded parameters (shard_parameters) that are gathered at a time. Beyond it,
  // a rank gathers only what one kernel reads.
  int64_t gathered_bytes = int64_t{32} << 20;
};

// While it lives, the windows of `optimizer` are those of all ranks: with n micro-batches each, N
// ranks do what one process does that accumulates n * N of them, the first of each rank by rank,
// then their second. Parameters, states, running statistics and loss scales are the same on all
// ranks, and equal those of the one process bit for bit (docs/parallel.md says when that takes
// set_overflow()). Random ops draw from a stream of their own per micro-batch
// (Generator::begin_stream).
//
//   rw::Communicator& ranks = rw::world();
//   rw::Accumulate optimizer(rw::SGD(model.parameters(), {.lr = 0.1f}), 1);
//   rw::DataParallel parallel(optimizer, ranks);
//   for (int64_t i = ranks.rank(); i < batches; i += ranks.size())  // as ever, with batch i
//
// Gradients leave as backward makes them: after the optimizer's backward() every grad() is
// undefined until step() has ended the window. Between the beginning and the end of backward() the
// ranks must not be used otherwise.
//
// With shard_parameters() each rank keeps the values of its own elements, and when kernels of
// forward, replay and backward read others, their owners send them. All ranks must then run the
// same passes in every step, and code that reads parameters in other ways (files, evaluation by
// some of the ranks, initial values) must do so while they are gathered. The ranks must not be
// used in other ways from the beginning of a forward pass on, and not by another DataParallel.
//
// It belongs to the thread that makes it. With one rank it does nothing; for the same random
// numbers as with ranks, call begin_stream(i) before micro-batch i. Ranks must start alike: with
// the same parameters and options, windows and loss scales, on devices of one kind with one
// driver, since others round differently. RankError names the first difference.
class DataParallel {
 public:
  // Gathers sharded parameters and keeps them whole while it lives. No training meanwhile.
  class [[nodiscard]] Gathered {
   public:
    explicit Gathered(DataParallel& parallel);
    ~Gathered();
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;

   private:
    DataParallel& parallel_;
  };

  // Both must outlive it. AutogradError inside a window.
  explicit DataParallel(Accumulate& optimizer, Communicator& ranks = world(),
                        const DataParallelOptions& options = {});
  ~DataParallel();  // between windows parameters in parts become whole, by all ranks together
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // A step of a rank that has no micro-batch while others have one, at the end of an epoch. Returns
  // whether an update was queued.
  bool skip();

  // Called on all ranks together, between steps. It does nothing if parameters are whole.
  Gathered gather_parameters() { return Gathered(*this); }

  Traffic traffic() const;  // messages of gradients so far, of this rank; with one rank none

 private:
  class Exchange;

  Accumulate& optimizer_;
  std::shared_ptr<Exchange> exchange_;  // null: one rank
  std::optional<StatisticsScope> statistics_;
  bool is_exact_ = false;
  int exceptions_ = 0;  // under way when it was made
};

// A statement of a rank about itself: a setting, the data, a version.
struct Claim {
  std::string what, value;                               // its name, and what it is here
  std::string remedy = "start all ranks with the same";  // the advice if values differ
};
// RankError, with the first claim that differs on another rank, both values, and what to do.
void check_alike(Communicator& ranks, const std::vector<Claim>& claims);

}  // namespace rw
