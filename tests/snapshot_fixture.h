// A training run with all that a snapshot must not forget.
#pragma once

#include <cstring>

#include "../core/ops/autocast.h"
#include "../io/snapshot.h"
#include "../nn/layers.h"
#include "../nn/sequential.h"
#include "../optim/accumulate.h"
#include "../optim/adam.h"
#include "optim_fixture.h"

namespace rw::test {

// A small network with running statistics, dropout,
// momenta, a loss scale that moves, a schedule, and windows of micro-batches.
class Run {
 public:
  explicit Run(DType dtype, uint32_t micro_batches = 2)
      : dtype_(dtype),
        seeded_((manual_seed(5), true)),
        optimizer_(Adam(build(model_).parameters(), {.lr = 0.01f}), micro_batches) {
    optimizer_.set_schedule(Schedule::cosine(12, 3));
    if (dtype == DType::f16) optimizer_.set_scaler(LossScaler::dynamic(0x1p30f, 2, 0.5f, 3));
  }

  float step() {
    const auto seed = static_cast<int>(position.epoch * 100 + position.index);
    const Tensor x = tensor(some_values(4 * 6 * 6 * 3, seed), {4, 6, 6, 3}, dtype_);
    const std::vector<int32_t> labels = {seed % 3, (seed + 1) % 3, 2, 0};
    Tensor loss;
    {
      const Autocast autocast(dtype_, dtype_ != DType::f32);
      loss = cross_entropy(model_(x), tensor(labels, {4}));
    }
    optimizer_.backward(loss);
    optimizer_.step();
    ++position.step;
    if (++position.index == 5) position.index = 0, ++position.epoch;
    return loss.item();
  }

  TrainingState state() { return {.model = model_, .optimizer = optimizer_}; }
  // Every bit that training left, with the names.
  std::vector<std::pair<std::string, std::vector<uint32_t>>> bits() {
    std::vector<std::pair<std::string, std::vector<uint32_t>>> all;
    const auto add = [&](const std::string& name, const Tensor& t) {
      const std::vector<float> values = t.to_vector();
      all.emplace_back(name, std::vector<uint32_t>(values.size()));
      std::memcpy(all.back().second.data(), values.data(), values.size() * sizeof(float));
    };
    for (const auto& [name, t] : state_dict(model_)) add(name, t);
    for (const auto& [name, t] : optimizer_.state()) add(name, t);
    return all;
  }
  uint64_t skipped() const { return optimizer_.skipped(); }
  Accumulate& optimizer() { return optimizer_; }

  TrainingPosition position;

 private:
  static Sequential& build(Sequential& model) {
    model.emplace<Conv2d>(3, 8, 3, Conv2dOptions{.padding = 1, .bias = false});
    model.emplace<BatchNorm2d>(8);
    model.emplace<ReLU>();
    model.emplace<Dropout>(0.3f);
    model.emplace<GlobalAvgPool>();
    model.emplace<Linear>(8, 3);
    return model;
  }

  DType dtype_;
  bool seeded_;
  Sequential model_;
  Accumulate optimizer_;
};

inline constexpr int64_t total_steps = 24;

// Trains to the end, going on from the newest snapshot, with one after each `every` micro-batches.
inline void train_with_snapshots(Run& run, const std::filesystem::path& folder, int64_t every) {
  SnapshotDirectory snapshots(folder, 2);
  if (const auto found = snapshots.load_latest(run.state())) run.position = found->position;
  while (run.position.step < total_steps) {
    run.step();
    if (run.position.step % every == 0) snapshots.save(run.state(), run.position);
  }
}

}  // namespace rw::test
