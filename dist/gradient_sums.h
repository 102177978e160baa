// Adds up the gradients of ranks in one order.
#pragma once

#include <vector>

#include "../optim/accumulation/gradient_exchange.h"
#include "../optim/base/parameters.h"
#include "gradient_buckets.h"
#include "host_copy.h"
#include "traffic.h"
#include "world/communicator.h"
#include "world/message_thread.h"

namespace rw {

// How gradients are sent.
struct GradientSumsOptions {
  int64_t bucket_bytes = int64_t{8} << 20;    // of f32 gradients in one message, at most
  DType transport = DType::f32;               // of gradients in messages; a float
  int64_t staging_bytes = int64_t{32} << 20;  // on the host, of buckets that leave; three at least
  bool overlaps = true;                       // messages go while backward runs
};

// For a micro-batch, every owner (GradientBuckets) gets the gradients of its part from all ranks
// and adds them, in rank order and on its device, by the kernel with which backward adds, so the
// bits are those of one process. When the window is full, all ranks get the sums from the owners.
//
// Gradients go in buckets, always in one order, so that ranks whose passes reach other parameters
// do not wait for each other in vain. The device copies a complete bucket into host memory, its
// gradients are dropped, and a thread waits for the copy and sends the messages while backward
// continues. Gradients that have arrived wait in host memory for add(), which is no part of
// backward: its allocations, and all sums, are the same whenever messages arrive. The first window
// has its buckets in the order of the parameters, from the last one; later windows in the order in
// which backward made rank 0's gradients. Between begin_pass() and end_pass() the communicator
// belongs to the thread.
//
// The device holds gradients until their bucket is complete; from the first micro-batch of a window
// to its end, the own part of the sums, 4 bytes per parameter divided by the number of ranks; and
// in add() and finish() a bucket. The host holds buckets that leave, and all gradients that have
// arrived.
class GradientSums : public GradientExchange {
 public:
  // `ranks` and `parameters` must outlive it.
  GradientSums(Communicator& ranks, const FlatParameters& parameters,
               const GradientSumsOptions& options = {});

  std::vector<float> all(float own) override { return gather(ranks(), own); }
  void begin() override;
  void begin_pass() override;
  void take(size_t slot);  // grad() of a slot is complete
  void end_pass() override;
  std::vector<float> overflows() override { return gather(ranks(), overflows_ ? 1.0f : 0.0f); }
  void add(const std::vector<bool>& counts) override;
  void finish() override;
  void share_stats(const Tensor& stats) override;
  void share_parameters() override;

  const Traffic& traffic() const { return traffic_; }  // so far, of this rank

 protected:
  // For messages of the calling thread: the other thread has none under way.
  Communicator& ranks() {
    thread_.wait_for_all();
    return ranks_;
  }
  MessageThread& thread() { return thread_; }  // for messages in their turn among the gradients'

 private:
  // Host memory that a bucket is copied into, in the order of the messages.
  struct Staging {
    HostCopy copy;     // in the dtype of the messages
    uint64_t job = 0;  // that sends it
  };
  GradientBuckets cut(const std::vector<size_t>& order) const;
  void learn_order();
  void set_up_staging();
  void start_pass();
  bool is_complete(const GradientBucket& bucket) const;
  void send(size_t bucket);
  void wait_for(const std::function<void()>& device, uint64_t job);
  Staging& fill_staging(const GradientBucket& bucket);
  void drop(const GradientBucket& bucket);
  const std::vector<FlatParameters::Slot>& slots() const { return parameters_.slots(); }
  Tensor workspace(Shape shape, DType dtype) const;
  void keep_own();
  bool is_dry() const;
  // All ranks' parts of a bucket of f32, given this rank's part, or undefined if it has none.
  Tensor gathered(const GradientBucket& bucket, Tensor part);

  Communicator& ranks_;
  const GradientSumsOptions options_;
  const FlatParameters& parameters_;
  const std::optional<Ownership> owners_;  // with a Shard
  GradientBuckets buckets_;
  std::vector<size_t> completed_;  // slots in the order of the first pass
  bool is_learnt_ = false;         // their order is that of the buckets
  uint64_t passes_ = 0;

  bool is_open_ = false;          // a pass runs
  size_t next_ = 0;               // bucket of the pass
  std::vector<uint8_t> arrived_;  // by slot, in the pass
  std::vector<uint8_t> reached_;  // by slot: a gradient came in this window, on any rank
  Tensor sums_;                   // of the own parts; undefined: none have come
  std::vector<Staging> staging_;  // taken in turns
  std::vector<std::vector<std::byte>> received_;  // by bucket: the own part of all ranks

  // The thread writes these; read them when its jobs are done.
  bool overflows_ = false;
  Traffic traffic_;
  MessageThread thread_;  // the last member: it ends first
};

}  // namespace rw
