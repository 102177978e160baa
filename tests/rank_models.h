// Models with which tests of ranks train.
#pragma once

#include "../core/autograd/checkpoint.h"
#include "../core/ops/autocast.h"
#include "../core/ops/indexing.h"
#include "../core/predict/recompute.h"
#include "../nn/models/bert.h"
#include "../nn/models/resnet.h"
#include "../optim/adam.h"
#include "../optim/sgd.h"
#include "accumulation_fixture.h"
#include "rank_fixture.h"

namespace rw::test {

// A micro-batch whose gradients overflow, at a place in the training; -1: none.
struct Poison {
  int64_t at = -1;
  Tensor of(Tensor loss, int64_t i) const { return i == at ? loss * 3e38f * 1e10f : loss; }
};

struct NetOptions {
  CheckpointMode checkpoint = CheckpointMode::none;
  bool evicts = false;  // under a budget that is too small for the pass
  Accumulate::Overflow overflow = Accumulate::Overflow::voids_window;
  Poison poison = {};
  float max_norm = 0;
  int64_t words = 40;        // of BERT: thousands are most of its parameters
  bool autocast = false;     // to f16
  DType dtype = DType::f32;  // of the parameters
};

inline std::vector<Tensor> parameters_of(Module& model, DType dtype) {
  model.to(dtype);
  return model.parameters();
}

inline void set_up(Accumulate& optimizer, const NetOptions& options) {
  optimizer.set_overflow(options.overflow);
  optimizer.set_max_norm(options.max_norm);
  if (options.poison.at >= 0) optimizer.set_scaler(LossScaler::dynamic(1024, 2, 0.5f, 2));
}

// ResNet-8 and micro-batches of different sizes.
class SmallResNet : public Trainee {
 public:
  SmallResNet(uint32_t n, const NetOptions& options)
      : options_(options),
        seeded_((manual_seed(9), true)),
        optimizer_(SGD(in_own_shard(one_group(parameters_of(model_, options.dtype))),
                       {.lr = 0.05f, .momentum = 0.9f}),
                   n) {
    model_.set_checkpoint(options.checkpoint);
    set_up(optimizer_, options);
  }
  Accumulate& optimizer() override { return optimizer_; }
  std::vector<Tensor> tensors() override {
    std::vector<Tensor> all;
    for (const auto& [name, t] : model_.named_parameters()) all.push_back(t);
    for (const auto& [name, t] : model_.named_buffers()) all.push_back(t);
    return all;
  }
  MicroBatch micro_batch(int64_t i) override {
    const int64_t rows = 2 + i % 3;
    const Tensor images = tensor(
        some_values(static_cast<int>(rows * 8 * 8 * 3), static_cast<int>(i)), {rows, 8, 8, 3});
    std::vector<int32_t> classes;
    for (int64_t row = 0; row < rows; ++row)
      classes.push_back(static_cast<int32_t>((i * 7 + row) % 10));
    std::optional<MemoryBudget> budget;
    std::optional<RecomputeScope> evicting;
    if (options_.evicts) {
      budget.emplace(default_device()->live() + (uint64_t{300} << 10));
      evicting.emplace(Recompute{.evicts = true});
    }
    const Autocast autocast(DType::f16, options_.autocast);
    const Tensor loss = cross_entropy(model_(images), tensor(classes, {rows}));
    return {options_.poison.of(loss, i), static_cast<float>(rows)};
  }

 private:
  const NetOptions options_;
  bool seeded_;
  ResNet model_{resnet_cifar(8)};
  Accumulate optimizer_;
};

// Two layers of BERT with dropout; its table of words is read twice.
class SmallBert : public Trainee {
 public:
  SmallBert(uint32_t n, const NetOptions& options)
      : options_(options),
        seeded_((manual_seed(5), true)),
        optimizer_(
            AdamW(in_own_shard(one_group(parameters_of(model_, options.dtype))), {.lr = 1e-2f}),
            n) {
    model_.bert.set_checkpoint(options.checkpoint == CheckpointMode::block ? 1 : 0);
    set_up(optimizer_, options);
  }
  Accumulate& optimizer() override { return optimizer_; }
  std::vector<Tensor> tensors() override { return model_.parameters(); }
  MicroBatch micro_batch(int64_t i) override {
    std::vector<int32_t> ids, targets;
    const auto words = static_cast<int32_t>(options_.words);
    const int32_t stride = words == 40 ? 7 : 401;
    for (int32_t k = 0; k < 16; ++k)
      ids.push_back(static_cast<int32_t>(i * 11 + k * stride) % words);
    const std::vector<int32_t> at = {1, 9, 12};
    for (const int32_t p : at) targets.push_back((ids[static_cast<size_t>(p)] + 1) % words);
    const Autocast autocast(DType::f16, options_.autocast);
    const Tensor hidden = model_.forward({.ids = tensor(ids, {2, 8})});
    const Tensor loss = model_.token_loss(hidden, tensor(at, {3}), tensor(targets, {3}));
    return {options_.poison.of(loss, i), static_cast<float>(1 + i % 2)};
  }

 private:
  static BertConfig config(int64_t words) {
    return {.vocab_size = words,
            .hidden_size = 16,
            .num_hidden_layers = 2,
            .num_attention_heads = 2,
            .intermediate_size = 32,
            .max_position_embeddings = 8};
  }
  const NetOptions options_;
  bool seeded_;
  BertForPreTraining model_{config(options_.words), false};
  Accumulate optimizer_;
};

// Random, with any optimizer.
struct RandomTrainee : Trainee {
  RandomTrainee(uint64_t seed, const OptimizerMaker& maker, uint32_t n)
      : problem(seed), made(maker.accumulating(in_own_shard(problem.groups()), n)) {
    made->set_overflow(Accumulate::Overflow::voids_micro_batch);
    if (seed % 2) made->set_max_norm(0.5f);
    if (seed % 3) made->set_scaler(LossScaler::dynamic(256, 2, 0.5f, 2));
  }
  Accumulate& optimizer() override { return *made; }
  MicroBatch micro_batch(int64_t i) override {
    const int64_t begin = i * 5 % 40, size = 1 + i % 4;
    return {problem.loss(begin, begin + size), static_cast<float>(size)};
  }
  std::vector<Tensor> tensors() override { return problem.parameters; }
  RandomProblem problem;
  std::unique_ptr<Accumulate> made;
};

// Most of it is one table of several rows of the gradients' table, which ranks divide where the
// rule of the optimizer allows.
struct TableTrainee : Trainee {
  TableTrainee(const OptimizerMaker& maker, uint32_t n) {
    const auto add = [&](const Shape& shape, const char* name) {
      w.push_back(tensor(some_values(static_cast<int>(shape.numel())), shape).set_requires_grad());
      w.back().impl().name = name;
    };
    add({6, 6}, "first");
    add({2400, 6}, "table");
    add({2400}, "bias");
    made = maker.accumulating(in_own_shard(one_group(w)), n);
    made->set_overflow(Accumulate::Overflow::voids_micro_batch);
    made->set_max_norm(0.5f);
  }
  Accumulate& optimizer() override { return *made; }
  MicroBatch micro_batch(int64_t i) override {
    const Tensor x = tensor(some_values(12, static_cast<int>(i)), {2, 6});
    return {mean(square(linear(tanh(matmul(x, w[0])), w[1], w[2]))), static_cast<float>(1 + i % 2)};
  }
  std::vector<Tensor> tensors() override { return w; }
  std::vector<Tensor> w;
  std::unique_ptr<Accumulate> made;
};

template <class T>
inline MakeTrainee maker(const NetOptions& options = {}) {
  return [=](uint32_t n) { return std::make_unique<T>(n, options); };
}

}  // namespace rw::test
