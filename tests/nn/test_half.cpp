// Models of 16-bit parameters: trainings by all optimizers against f32 parameters under Autocast,
// files, averages.
#include <functional>

#include "io/models/model.h"
#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "nn/norm.h"
#include "nn/recurrent.h"
#include "nn/sequential.h"
#include "nn/transformer/attention.h"
#include "ops/autocast.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adafactor.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/lion.h"
#include "optim/lookahead.h"
#include "optim/muon.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using namespace rw::test;

namespace {

// Parameters that products read: Autocast casts those, and not the weights of norms.
struct HalfNet {
  Sequential model;
  explicit HalfNet(int seed = 5) {
    manual_seed(static_cast<uint64_t>(seed));
    model.emplace<Linear>(6, 16);
    model.emplace<Tanh>();
    model.emplace<Linear>(16, 3);
    model.half();
  }
  // f32 parameters of the same values.
  HalfNet& widen() {
    model.to(DType::f32);
    return *this;
  }
  Tensor loss(int seed) {
    const Tensor x = cast(tensor(some_values(8 * 6, seed), {8, 6}), DType::f16);
    return cross_entropy(model(x),
                         tensor(std::vector<int32_t>{seed % 3, 1, 2, 0, 0, 1, 2, 1}, {8}));
  }
};

using MakeHalf = std::function<std::unique_ptr<Optimizer>(const Module&)>;

template <class O>
MakeHalf half_maker(typename std::type_identity_t<O>* = nullptr) {
  return [](const Module& m) { return std::make_unique<O>(m.parameters()); };
}

std::vector<std::pair<std::string, MakeHalf>> half_optimizers() {
  return {{"SGD",
           [](const Module& m) {
             return std::make_unique<SGD>(m.parameters(), SGDOptions{.lr = 0.1f, .momentum = 0.9f});
           }},
          {"Adam", half_maker<Adam>()},
          {"AdamW", half_maker<AdamW>()},
          {"Lamb", half_maker<Lamb>()},
          {"Lion", half_maker<Lion>()},
          {"RMSprop", half_maker<RMSprop>()},
          {"Adagrad", half_maker<Adagrad>()},
          {"Adafactor", half_maker<Adafactor>()},
          {"Muon", [](const Module& m) {
             std::vector<Tensor> matrices, others;
             for (const Tensor& p : m.parameters())
               (p.rank() == 2 ? matrices : others).push_back(p);
             return std::make_unique<Muon>(matrices, MuonOptions{}, others);
           }}};
}

std::vector<Tensor> masters(const Optimizer& optimizer) {
  std::vector<Tensor> all;
  for (const FlatParameters::Slot& slot : optimizer.parameters().slots())
    all.push_back(optimizer.parameters().master(slot));
  return all;
}

// Whether every parameter is its master in 16 bits.
bool are_rounded(const Optimizer& optimizer) {
  const auto& slots = optimizer.parameters().slots();
  return std::all_of(slots.begin(), slots.end(), [&](const FlatParameters::Slot& slot) {
    const Tensor rounded = copy_of(optimizer.parameters().master(slot), slot.parameter.dtype());
    return slot.parameter.to_vector() == rounded.to_vector();
  });
}

void take_step(Optimizer& optimizer, HalfNet& net, int seed) {
  optimizer.backward(net.loss(seed));
  optimizer.step();
  optimizer.zero_grad();
}

}  // namespace

TEST_CASE("half: every optimizer updates f32 masters as it updates f32 parameters") {
  on_each_device([] {
    for (const auto& [name, make] : half_optimizers()) {
      INFO(name);
      HalfNet half, wide;
      wide.widen();
      CHECK(half.model.parameters()[0].dtype() == DType::f16);
      CHECK(wide.model.parameters()[0].dtype() == DType::f32);
      const auto a = make(half.model), b = make(wide.model);
      for (Optimizer* o : {a.get(), b.get()}) o->set_scaler(LossScaler::dynamic(0x1p24f, 4));
      const Values before = all_values(masters(*a));
      for (int i = 0; i < 6; ++i) {
        take_step(*a, half, i);
        const Autocast autocast(DType::f16);
        take_step(*b, wide, i);
        CHECK(half.model.parameters()[0].grad().defined() == false);
      }
      CHECK(a->skipped() > 0);
      CHECK(a->updates() > 0);
      CHECK(a->skipped() == b->skipped());
      CHECK(all_values(masters(*a)) != before);
      CHECK(all_values(masters(*a)) == all_values(masters(*b)));
      CHECK(are_rounded(*a));
    }
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "half: updates smaller than a 16-bit step add up" * doctest::test_suite("host")) {
  Tensor w = full({8}, 1, DType::f16);
  w.set_requires_grad();
  SGD sgd({w}, {.lr = 1e-4f});
  for (int i = 0; i < 20; ++i) {
    sgd.backward(sum(w));  // a gradient of 1; the spacing below 1 is 4.9e-4
    sgd.step();
    sgd.zero_grad();
  }
  CHECK(w.to_vector()[3] == doctest::Approx(1 - 20e-4).epsilon(3e-4));
}

TEST_CASE_FIXTURE(CpuDevice, "half: gradients are f32, memory is 2 bytes for the model" *
                                 doctest::test_suite("host")) {
  const auto bytes = [&](Purpose purpose) {
    return device->memory_report().live_by_purpose[static_cast<int>(purpose)];
  };
  Linear layer(128, 64, false);
  const uint64_t elements = 128 * 64;
  CHECK(bytes(Purpose::parameter) == 4 * elements);
  layer.half();
  CHECK(bytes(Purpose::parameter) == 2 * elements);
  SGD sgd(layer.parameters(), {.lr = 0.1f});
  CHECK(bytes(Purpose::parameter) == 2 * elements);
  CHECK(bytes(Purpose::optimizer) >= 4 * elements);  // the masters
  sgd.backward(sum(layer(full({2, 128}, 0.5f, DType::f16))));
  CHECK(layer.weight.grad().dtype() == DType::f32);
}

TEST_CASE_FIXTURE(CpuDevice, "half: what is written to parameters reaches their masters" *
                                 doctest::test_suite("host")) {
  HalfNet net;
  SGD sgd(net.model.parameters(), {.lr = 1e-3f});
  for (int i = 0; i < 3; ++i) take_step(sgd, net, i);
  const std::vector<Tensor> wide = masters(sgd);
  const Values first = wide[0].to_vector(), last = wide.back().to_vector();
  CHECK(first != copy_of(wide[0], DType::f16).to_vector());  // there are bits to lose
  Tensor written = net.model.parameters().back();
  written.copy_(full(written.shape(), 0.25f));
  sgd.set_learning_rate(0);
  take_step(sgd, net, 9);
  CHECK(wide.back().to_vector() == Values(last.size(), 0.25f));
  CHECK(wide[0].to_vector() == first);  // parameters to which nobody wrote keep all their bits
  CHECK(written.to_vector() == Values(last.size(), 0.25f));
}

TEST_CASE_FIXTURE(CpuDevice, "half: averages take the 16-bit parameters' place, and give it back" *
                                 doctest::test_suite("host")) {
  Tensor w = full({8}, 1, DType::f16);
  w.set_requires_grad();
  SGD sgd({w}, {.lr = 0.25f});
  Ema ema(sgd, {.decay = 0.5f});
  sgd.backward(sum(w));
  sgd.step();
  CHECK(w.to_vector() == Values(8, 0.75f));
  ema.apply();
  CHECK(w.to_vector() == Values(8, 0.875f));
  ema.restore();
  CHECK(w.to_vector() == Values(8, 0.75f));
}

TEST_CASE("half: a snapshot goes on with the same bits, with averages and in windows") {
  on_each_device([] {
    const TemporaryFolder folder;
    struct Training {
      HalfNet net;
      Accumulate optimizer{Adam(net.model.parameters(), {.lr = 0.01f}), 2};
      Ema ema{optimizer, {.decay = 0.9f}};
      Lookahead lookahead{optimizer, 2};
      explicit Training(int seed) : net(seed) {}
      void run(int begin, int end) {
        for (int i = begin; i < end; ++i) take_step(optimizer, net, i);
      }
      TrainingState state() {
        TrainingState s{.model = net.model, .optimizer = optimizer};
        for (const auto& [name, t] : ema.state()) s.extra.emplace_back(name, t);
        for (const auto& [name, t] : lookahead.state()) s.extra.emplace_back(name, t);
        return s;
      }
      Values values() {
        std::vector<Tensor> all = net.model.parameters();
        for (const auto& [name, t] : state().optimizer.state()) all.push_back(t);
        for (const auto& [name, t] : state().extra) all.push_back(t);
        ema.apply();
        Values averages = all_values(net.model.parameters());
        ema.restore();
        Values values = all_values(all);
        values.insert(values.end(), averages.begin(), averages.end());
        return values;
      }
    };
    Training whole(5), first(5), second(77);
    whole.run(0, 12);
    first.run(0, 6);
    save_snapshot(folder / "step", first.state(), {.step = 6});
    load_snapshot(folder / "step", second.state());
    second.run(6, 12);
    CHECK(second.values() == whole.values());
  });
}

TEST_CASE_FIXTURE(CpuDevice, "half: files, state dicts and errors" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  HalfNet net(5), other(6);
  save_model(folder / "model.safetensors", net.model);
  load_model(folder / "model.safetensors", other.model);
  CHECK(all_values(other.model.parameters()) == all_values(net.model.parameters()));
  HalfNet wide(7);
  wide.widen();
  load_model(folder / "model.safetensors", wide.model);
  CHECK(all_values(wide.model.parameters()) == all_values(net.model.parameters()));

  CHECK_THROWS_AS(net.model.to(DType::i32), DTypeError);
  {
    SGD sgd(net.model.parameters(), {.lr = 0.1f});
    CHECK_THROWS_WITH_AS(net.model.half(),
                         "[to] '0.weight' belongs to an optimizer; make that afterwards",
                         AutogradError);
    // Saved by one optimizer, continued by another.
    take_step(sgd, net, 1);
    SGD continued(other.model.parameters(), {.lr = 0.1f});
    CHECK_THROWS_AS(continued.load_state({{"control", sgd.control()}}), FileError);
    continued.load_state(sgd.state());
    CHECK(all_values(other.model.parameters()) == all_values(net.model.parameters()));
  }
  net.model.to(DType::f32);
  CHECK(net.model.parameters()[0].dtype() == DType::f32);
  net.model.to(DType::bf16, DType::f32);
  for (const Tensor& p : net.model.parameters())
    CHECK(p.dtype() == (p.rank() > 1 ? DType::bf16 : DType::f32));
}

TEST_CASE("half: norms, embeddings, recurrent layers and attention take 16-bit parameters") {
  on_each_device([] {
    manual_seed(1);
    const Tensor x = cast(randn({2, 4, 4, 8}), DType::f16);
    const auto check = [](Module& m, const Tensor& y) {
      CHECK(y.dtype() == DType::f16);
      sum(cast(y, DType::f32)).backward();
      for (const auto& [name, p] : m.named_parameters()) {
        INFO(name);
        CHECK(p.dtype() == DType::f16);
        REQUIRE(p.grad().defined());
        CHECK(p.grad().dtype() == DType::f32);
      }
    };
    BatchNorm2d batch(8);
    batch.half();
    check(batch, batch(x));
    CHECK(batch.running_mean.dtype() == DType::f32);
    batch.eval();
    CHECK(batch(x).dtype() == DType::f16);
    GroupNorm group(2, 8);
    group.half();
    check(group, group(x));
    RMSNorm rms(8);
    rms.half();
    check(rms, rms(x));
    Conv2d conv(8, 4, 3);
    conv.half();
    check(conv, conv(x));
    Embedding table(5, 8);
    table.half();
    check(table, table(zeros({3}, DType::i32)));
    LSTM lstm(8, 4);
    lstm.half();
    check(lstm, lstm(reshape(x, {4, 8, 8})));
    GRU gru(8, 4);
    gru.half();
    check(gru, gru(reshape(x, {4, 8, 8})));
    BertAttention heads(8, 2);
    heads.half();
    const Tensor q = reshape(x, {4, 8, 8});
    check(heads, heads(q));
  });
}
