// Tests of ranks: the same training by one process and by ranks that are threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "../core/base/rng.h"
#include "../dist/data_parallel.h"
#include "../dist/thread_ranks.h"
#include "../optim/state_parts.h"
#include "optim_fixture.h"

namespace rw::test {

// A model with its optimizer and its data.
class Trainee {
 public:
  virtual ~Trainee() = default;
  virtual Accumulate& optimizer() = 0;
  // The loss of micro-batch i and its weight.
  virtual MicroBatch micro_batch(int64_t i) = 0;
  virtual std::vector<Tensor> tensors() = 0;  // parameters and buffers
};
// With windows of n micro-batches. The same for equal n.
using MakeTrainee = std::function<std::unique_ptr<Trainee>(uint32_t n)>;

// Of this thread's rank, where a test wants states in parts.
inline thread_local std::optional<Shard> own_shard;
inline std::vector<ParameterGroup> in_own_shard(std::vector<ParameterGroup> groups) {
  return own_shard ? shard_states(std::move(groups), *own_shard) : groups;
}

struct RankTest {
  int ranks = 2;
  uint32_t each = 1;          // micro-batches of a rank in a window
  int64_t micro_batches = 8;  // in all, on all ranks
  bool is_exact = false;      // batch norm
  bool shards = false;        // the optimizer's state
  bool parts = false;         // and the parameters, of which few are gathered at a time
  // So small that gradients of small models take many buckets, and are cut.
  int64_t bucket_bytes = 4096;
  DType transport = DType::f32;
};

// What training leaves.
struct RankResult {
  std::vector<Values> tensors;
  std::map<std::string, Values> state;  // of the optimizer
  uint64_t updates = 0, skipped = 0, voided = 0;
  bool operator==(const RankResult&) const = default;
};

inline RankResult result_of(Trainee& trainee) {
  RankResult result;
  for (const Tensor& t : trainee.tensors()) result.tensors.push_back(t.to_vector());
  for (const auto& [name, t] : trainee.optimizer().state()) result.state[name] = t.to_vector();
  const UpdateCounts counts = trainee.optimizer().counts();
  result.updates = counts.updates;
  result.skipped = counts.skipped;
  result.voided = counts.voided;
  return result;
}

// One process that accumulates all micro-batches of a window.
inline RankResult in_one_process(const MakeTrainee& make, const RankTest& test) {
  const auto window = static_cast<uint32_t>(test.ranks) * test.each;
  const auto trainee = make(window);
  Accumulate& optimizer = trainee->optimizer();
  if (test.is_exact) {
    for (int64_t i = 0; i < test.micro_batches; i += window)
      optimizer.run_together([&](uint32_t part) { return trainee->micro_batch(i + part); });
  } else {
    for (int64_t i = 0; i < test.micro_batches; ++i) {
      default_generator().begin_stream(static_cast<uint64_t>(i));
      const MicroBatch one = trainee->micro_batch(i);
      optimizer.backward(one.loss, one.weight);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  optimizer.flush();
  return result_of(*trainee);
}

// By rank.
inline std::vector<RankResult> in_ranks(const MakeTrainee& make, const RankTest& test) {
  std::vector<RankResult> results(static_cast<size_t>(test.ranks));
  run_ranks(test.ranks, [&](Communicator& ranks) {
    own_shard.reset();
    if (test.shards || test.parts)
      own_shard = Shard{ranks.rank(), ranks.size(), uint64_t{test.parts ? 2048u : 0u}};
    const auto trainee = make(test.each);
    Accumulate& optimizer = trainee->optimizer();
    {
      DataParallel parallel(optimizer, ranks,
                            {.exact_batch_norm = test.is_exact,
                             .bucket_bytes = test.bucket_bytes,
                             .transport = test.transport,
                             .gathered_bytes = 4096});
      for (int64_t i = ranks.rank(); i - ranks.rank() < test.micro_batches; i += ranks.size()) {
        if (ranks.size() == 1) default_generator().begin_stream(static_cast<uint64_t>(i));
        if (i < test.micro_batches) {
          const MicroBatch one = trainee->micro_batch(i);
          optimizer.backward(one.loss, one.weight);
          optimizer.step();
        } else {
          parallel.skip();
        }
        optimizer.zero_grad();
      }
      optimizer.flush();
    }
    results[static_cast<size_t>(ranks.rank())] = result_of(*trainee);
  });
  return results;
}

// What one process has of a state, or of the part of one that a name says.
inline Values of_whole(const std::map<std::string, Values>& state, const std::string& name) {
  const std::optional<StatePart> part = parse_part_name(name);
  if (!part) return state.at(name);
  const Values& whole = state.at(part->whole);
  REQUIRE(part->elements.end() <= static_cast<int64_t>(whole.size()));
  return {whole.begin() + part->elements.offset, whole.begin() + part->elements.end()};
}

// Elements of states, without what all ranks have.
inline size_t elements_of(const std::map<std::string, Values>& state) {
  size_t elements = 0;
  for (const auto& [name, values] : state) elements += name == "control" ? 0 : values.size();
  return elements;
}

// All ranks have what one process has.
inline void check_ranks(const MakeTrainee& make, const RankTest& test) {
  INFO(test.ranks, " ranks, ", test.each, " each, of ", test.micro_batches);
  const Generator start = default_generator();
  const RankResult one = in_one_process(make, test);
  default_generator() = start;
  size_t kept = 0;
  for (const RankResult& rank : in_ranks(make, test)) {
    CHECK(rank.tensors == one.tensors);
    for (const auto& [name, values] : rank.state) {
      CAPTURE(name);
      CHECK(values == of_whole(one.state, name));
    }
    kept += elements_of(rank.state);
    CHECK(rank.updates == one.updates);
    CHECK(rank.skipped == one.skipped);
    CHECK(rank.voided == one.voided);
  }
  CHECK(kept ==
        (test.shards || test.parts ? 1 : static_cast<size_t>(test.ranks)) * elements_of(one.state));
}

}  // namespace rw::test
