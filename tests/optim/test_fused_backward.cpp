// Updates fused into backward: the plain optimizer's bits, without its gradients in memory.

#include "core/autograd/checkpoint.h"
#include "core/autograd/tape.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
#include "planner/dry_run.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Linear layers with a tied weight, a parameter that no loss reaches, and segments.
struct FusedNet : Module {
  Linear first{6, 40}, second{40, 40}, last{40, 3};
  Tensor scale, unused;
  bool segments = false;

  FusedNet() {
    register_module("first", first);
    register_module("second", second);
    register_module("last", last);
    scale = register_parameter("scale", {3});
    unused = register_parameter("unused", {2});
    scale.copy_from(some_values(3));
    unused.copy_from(some_values(2));
  }
  Tensor forward(Tensor x) override {
    {
      const CheckpointScope scope(segments);
      x = relu(first(std::move(x)));
    }
    for (int i = 0; i < 2; ++i) {  // the same weights twice
      const CheckpointScope scope(segments);
      x = tanh(second(std::move(x)));
    }
    return last(std::move(x)) * scale;
  }
  Tensor loss(int seed) {
    return cross_entropy((*this)(tensor(some_values(8 * 6, seed), {8, 6})),
                         tensor(std::vector<int32_t>{seed % 3, 1, 2, 0, 0, 1, 2, 1}, {8}));
  }
  Values values() const {
    Values all;
    for (const Tensor& p : parameters())
      for (const float v : p.to_vector()) all.push_back(v);
    return all;
  }
};

using Groups = std::vector<ParameterGroup>;
using MakeFused = std::function<std::unique_ptr<Optimizer>(Groups)>;

struct FusedMaker {
  const char* name;
  MakeFused plain, one, two;
};

template <class O, class Options>
FusedMaker fused_maker(const char* name, const Options& options) {
  return {name, [=](Groups g) { return std::make_unique<O>(std::move(g), options); },
          [=](Groups g) { return std::make_unique<FusedBackward>(O(std::move(g), options)); },
          [=](Groups g) {
            return std::make_unique<FusedBackward>(O(std::move(g), options), FusedPasses::two);
          }};
}

std::vector<FusedMaker> fused_makers() {
  return {fused_maker<SGD>("sgd", SGDOptions{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f}),
          fused_maker<Adam>("adam", AdamOptions{.lr = 0.01f, .weight_decay = 0.1f}),
          fused_maker<AdamW>("adamw", AdamWOptions{.lr = 0.01f}),
          fused_maker<AdamW>("amsgrad", AdamWOptions{.lr = 0.01f, .amsgrad = true}),
          fused_maker<Lamb>("lamb", LambOptions{.lr = 0.01f, .weight_decay = 0.01f}),
          fused_maker<Lion>("lion", LionOptions{}),
          fused_maker<RMSprop>("rmsprop", RMSpropOptions{}),
          fused_maker<Adagrad>("adagrad", AdagradOptions{}),
          fused_maker<Adafactor>("adafactor", AdafactorOptions{})};
}

// Two groups with options of their own.
Groups groups_of(const FusedNet& net) {
  const std::vector<Tensor> all = net.parameters();
  return {{.parameters = {all.begin(), all.begin() + 2}, .lr_scale = 0.5f},
          {.parameters = {all.begin() + 2, all.end()}, .weight_decay = 0.05f}};
}

struct FusedSettings {
  bool segments = false;
  float max_norm = 0;
  LossScaler scaler = LossScaler::none();
  int overflow = -1;  // the step whose loss is infinite
};

// Returns the parameters after some steps, the norm of the last gradient, the counts, and the
// states.
Values train_fused(const MakeFused& make, const FusedSettings& settings = {}) {
  manual_seed(3);
  FusedNet net;
  net.segments = settings.segments;
  const auto optimizer = make(groups_of(net));
  optimizer->set_schedule(Schedule::cosine(8, 2));
  optimizer->set_max_norm(settings.max_norm);
  optimizer->set_scaler(settings.scaler);
  for (int t = 0; t < 5; ++t) {
    Tensor loss = net.loss(t);
    if (t == settings.overflow) loss = loss * infinity;
    optimizer->backward(loss);
    optimizer->step();
    optimizer->zero_grad();
    for (const Tensor& p : net.parameters()) CHECK(!p.grad().defined());
  }
  Values all = net.values();
  for (const float x :
       {optimizer->grad_norm(), optimizer->loss_scale(), static_cast<float>(optimizer->updates()),
        static_cast<float>(optimizer->skipped())})
    all.push_back(x);
  for (const auto& [name, state] : optimizer->state())
    if (name != "control")
      for (const float x : state.to_vector()) all.push_back(x);
  return all;
}

}  // namespace

TEST_CASE("fused backward: every rule, to the bit") {
  on_each_device([] {
    for (const FusedMaker& m : fused_makers()) {
      INFO(m.name);
      const Values plain = train_fused(m.plain);
      CHECK(train_fused(m.one) == plain);
      CHECK(train_fused(m.one, {.segments = true}) == plain);
      CHECK(train_fused(m.two) == plain);
    }
  });
}

TEST_CASE("fused backward: two passes clip and skip as the plain optimizer") {
  on_each_device([] {
    const FusedMaker adam = fused_maker<AdamW>("adamw", AdamWOptions{.lr = 0.01f});
    const LossScaler scaler = LossScaler::dynamic(1024, 2, 0.5f, 2);
    for (const bool segments : {false, true})
      for (const int overflow : {-1, 0, 2}) {
        const FusedSettings settings{segments, 0.05f, scaler, overflow};
        CHECK(train_fused(adam.two, settings) == train_fused(adam.plain, settings));
      }
    CHECK(train_fused(adam.one, {.scaler = scaler}) == train_fused(adam.plain, {.scaler = scaler}));
  });
}

TEST_CASE("fused backward: muon, whose parameters are given apart") {
  on_each_device([] {
    const auto run = [](bool fused) {
      manual_seed(3);
      FusedNet net;
      std::vector<Tensor> matrices, others;
      for (const Tensor& p : net.parameters()) (p.rank() == 2 ? matrices : others).push_back(p);
      Muon muon(matrices, MuonOptions{}, others);
      std::unique_ptr<Optimizer> optimizer;
      if (fused)
        optimizer = std::make_unique<FusedBackward>(std::move(muon));
      else
        optimizer = std::make_unique<Muon>(std::move(muon));
      for (int t = 0; t < 3; ++t) {
        optimizer->backward(net.loss(t));
        optimizer->step();
        optimizer->zero_grad();
      }
      return net.values();
    };
    CHECK(run(true) == run(false));
  });
}

TEST_CASE("fused backward: one pass clips by the norm of the update before") {
  on_each_device([] {
    const Tensor w = parameter({1, 2, 3, 4});
    FusedBackward optimizer(SGD({w}, {.lr = 1}));
    optimizer.set_max_norm(1);
    Values expected = w.to_vector();
    float before = 0;
    for (const float size : {3.0f, 0.5f, 2.0f, 0.25f}) {
      const float factor = before > 1 ? 1 / (before + 1e-6f) : 1;
      optimizer.backward(loss_with(w, {size, 0, 0, 0}));
      CHECK(optimizer.step());
      expected[0] -= factor * size;
      before = size;
      CHECK(optimizer.grad_norm() == doctest::Approx(size));
      CHECK(w.to_vector()[0] == doctest::Approx(expected[0]));
    }
  });
}

TEST_CASE("fused backward: an overflow stops what comes after it, and the scale falls") {
  on_each_device([] {
    const Tensor early = parameter({1, 2}), late = parameter({3, 4});
    FusedBackward optimizer(SGD({early, late}, {.lr = 1}));
    optimizer.set_scaler(LossScaler::dynamic(8, 2, 0.5f, 100));
    // `late` is read last, so its gradient comes first.
    const auto run = [&](float of_early, float of_late) {
      const Tensor e = sum(early * of_early);
      optimizer.backward(e + sum(late * of_late));
      CHECK(optimizer.step());
    };
    run(1, infinity);
    CHECK(late.to_vector() == Values{3, 4});
    CHECK(early.to_vector() == Values{1, 2});
    CHECK(optimizer.loss_scale() == 4);
    CHECK(optimizer.updates() == 0);
    CHECK(optimizer.skipped() == 1);
    run(infinity, 1);
    CHECK(late.to_vector() == Values{2, 3});  // its gradient was right
    CHECK(early.to_vector() == Values{1, 2});
    CHECK(optimizer.skipped() == 2);
    run(1, 1);
    CHECK(late.to_vector() == Values{1, 2});
    CHECK(early.to_vector() == Values{0, 1});
    CHECK(optimizer.updates() == 1);
    CHECK(optimizer.loss_scale() == 2);
  });
}

TEST_CASE("fused backward: averages, 16-bit parameters and resuming") {
  on_each_device([] {
    const auto run = [](bool fused, DType dtype, int resume_at) {
      manual_seed(3);
      auto net = std::make_unique<FusedNet>();
      net->to(dtype);
      const auto make = [&]() -> std::unique_ptr<Optimizer> {
        AdamW adam(groups_of(*net), {.lr = 0.01f});
        if (fused) return std::make_unique<FusedBackward>(std::move(adam));
        return std::make_unique<AdamW>(std::move(adam));
      };
      auto optimizer = make();
      auto ema = std::make_unique<Ema>(*optimizer, EmaOptions{.decay = 0.5f});
      for (int t = 0; t < 4; ++t) {
        if (t == resume_at) {  // everything is in new objects
          auto other = std::make_unique<FusedNet>();
          other->to(dtype);
          for (size_t i = 0; i < net->parameters().size(); ++i)
            other->parameters()[i].copy_(net->parameters()[i].detach());
          const auto old = std::move(optimizer);
          const auto old_ema = std::move(ema);
          const auto old_net = std::exchange(net, std::move(other));
          optimizer = make();
          ema = std::make_unique<Ema>(*optimizer, EmaOptions{.decay = 0.5f});
          optimizer->load_state(old->state());
          ema->load_state(old_ema->state());
        }
        const Tensor x = cast(tensor(some_values(8 * 6, t), {8, 6}), dtype);
        optimizer->backward(cross_entropy(
            (*net)(x), tensor(std::vector<int32_t>{t % 3, 1, 2, 0, 0, 1, 2, 1}, {8})));
        optimizer->step();
        optimizer->zero_grad();
      }
      Values all = net->values();
      ema->apply();
      for (const float v : net->values()) all.push_back(v);
      ema->restore();
      return all;
    };
    for (const DType dtype : {DType::f32, DType::f16}) {
      const Values plain = run(false, dtype, -1);
      CHECK(run(true, dtype, -1) == plain);
      CHECK(run(true, dtype, 2) == plain);
    }
  });
}

TEST_CASE("fused backward: gradients are in memory one at a time, as a dry run says") {
  on_each_device([] {
    constexpr int64_t width = 128, layers = 8;
    const auto program = [&](bool fused) {
      Sequential net;
      for (int64_t i = 0; i < layers; ++i) net.emplace<Linear>(width, width, false);
      std::unique_ptr<Optimizer> optimizer;
      if (fused)
        optimizer = std::make_unique<FusedBackward>(SGD(net.parameters(), {.lr = 0.1f}));
      else
        optimizer = std::make_unique<SGD>(net.parameters(), SGDOptions{.lr = 0.1f});
      default_device()->reset_peak();
      for (int t = 0; t < 3; ++t) {
        optimizer->backward(mean(net(full({4, width}, 1.0f))));
        optimizer->step();
        optimizer->zero_grad();
        default_device()->end_step();
      }
      return default_device()->memory_report();
    };
    const MemoryReport plain = program(false), fused = program(true);
    const uint64_t one = width * width * sizeof(float);
    CHECK(fused.peak + (layers - 2) * one <= plain.peak);
    CHECK(plan([&] { (void)program(true); }).memory.peak == fused.peak);
  });
}

TEST_CASE("fused backward: what must not be") {
  on_each_device([] {
    const Tensor w = parameter({1, 2});
    Adam used({w});
    used.backward(loss_with(w, {1, 1}));
    used.step();
    CHECK(contains(message_of<AutogradError>([&] { FusedBackward f(std::move(used)); }), "new"));
    const Tensor v = parameter({1, 2});
    Adam followed({v});
    const Ema ema(followed, {.decay = 0.9f});
    CHECK_THROWS_AS(FusedBackward(std::move(followed)), AutogradError);

    const Tensor u = parameter({1, 2});
    FusedBackward optimizer(Adam({u}));
    CHECK(!optimizer.step());  // nothing was taken
    optimizer.backward(loss_with(u, {1, 1}));
    CHECK(contains(message_of<AutogradError>([&] {
                     optimizer.backward(loss_with(u, {1, 1}));
                   }),
                   "once per step()"));
    CHECK(optimizer.step());
    const Ema average(optimizer, {.decay = 0.9f});
    const Values before = u.to_vector();
    Ema averaging(optimizer, {.decay = 0.5f});
    averaging.apply();
    CHECK_THROWS_AS(optimizer.backward(loss_with(u, {1, 1})), AutogradError);
    averaging.restore();
    CHECK(u.to_vector() == before);  // nothing was changed
    // A backward that is not the optimizer's leaves a gradient, as usual.
    loss_with(u, {2, 2}).backward();
    CHECK(u.grad().to_vector() == Values{2, 2});
    CHECK(u.to_vector() == before);
  });
}
