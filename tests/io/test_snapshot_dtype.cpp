// Training that goes on with parameters of another dtype than the snapshot's.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>

#include "io/snapshot/snapshot.h"
#include "nn/layers.h"
#include "nn/norm.h"
#include "nn/sequential.h"
#include "ops/losses/losses.h"
#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/ema.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"
using namespace rw;
using test::fault_of;

namespace {

using NamedValues = std::map<std::string, std::vector<float>>;

// A network with running statistics whose parameters are of a dtype, its optimizer and an average.
class DtypeTraining {
 public:
  explicit DtypeTraining(DType dtype, bool in_8_bits = false) : dtype_(dtype) {
    manual_seed(7);
    model_.emplace<Linear>(6, 16);
    model_.emplace<LayerNorm>(16);
    model_.emplace<Linear>(16, 3);
    if (dtype != DType::f32) model_.to(dtype);
    const std::vector<Tensor> parameters = model_.parameters();
    if (in_8_bits)
      optimizer_.emplace(AdamW8bit(parameters, {.lr = 0.02f}), 1u);
    else
      optimizer_.emplace(Adam(parameters, {.lr = 0.02f}), 2u);
    if (dtype == DType::f16) optimizer_->set_scaler(LossScaler::dynamic(1024));
    average_.emplace(*optimizer_, EmaOptions{.decay = 0.9f});
  }

  float step() {
    const auto seed = static_cast<int>(position.step++);
    const Tensor x = tensor(test::some_values(4 * 6, seed), {4, 6}, dtype_);
    const std::vector<int32_t> labels = {0, 1, 2, 0};
    const Tensor loss = cross_entropy(cast(model_(x), DType::f32), tensor(labels, {4}));
    optimizer_->backward(loss);
    optimizer_->step();
    optimizer_->zero_grad();
    return loss.item();
  }

  TrainingState state(bool change_dtype = false) {
    TrainingState state{.model = model_, .optimizer = *optimizer_, .change_dtype = change_dtype};
    for (const auto& [name, tensor] : average_->state()) state.extra.push_back({name, tensor});
    return state;
  }
  Accumulate& optimizer() { return *optimizer_; }
  std::vector<Tensor> parameters() const { return model_.parameters(); }

  // The f32 values that updates change: the masters, or the parameters themselves.
  NamedValues f32_values() const {
    NamedValues all;
    for (const FlatParameters::Slot& slot : optimizer_->parameters().slots())
      all[slot.name] = optimizer_->parameters().master(slot).to_vector();
    return all;
  }
  // The states of the optimizer and the average, without those that belong to the dtype: masters
  // and the loss scale.
  NamedValues states() {
    NamedValues all;
    for (const auto& [name, tensor] : optimizer_->state())
      if (name != "control" && !name.starts_with("master.")) all[name] = tensor.to_vector();
    // Sums of a window have the loss scale in them, a power of 2.
    for (auto& [name, values] : all)
      if (name.starts_with("accumulate.gradient."))
        for (float& value : values) value /= optimizer_->loss_scale();
    for (const auto& [name, tensor] : average_->state()) all[name] = tensor.to_vector();
    all["updates"] = {static_cast<float>(optimizer_->updates())};
    return all;
  }

  TrainingPosition position;

 private:
  DType dtype_;
  Sequential model_;
  std::optional<Accumulate> optimizer_;
  std::optional<Ema> average_;
};

}  // namespace

TEST_CASE("snapshot: f32 to 16 bits and back keeps the f32 values and the states to the bit") {
  test::on_each_device([] {
    const TemporaryFolder folder;
    for (const bool in_8_bits : {false, true})
      for (const DType low : {DType::f16, DType::bf16}) {
        CAPTURE(name(low));
        CAPTURE(in_8_bits);
        DtypeTraining first(DType::f32, in_8_bits);
        for (int i = 0; i < 7; ++i) first.step();  // inside of a window, where there are any
        save_snapshot(folder / "f32", first.state(), first.position);
        DtypeTraining half(low, in_8_bits);
        half.step();  // whatever it was before does not matter
        half.step();
        CHECK(load_snapshot(folder / "f32", half.state(true)).step == 7);
        CHECK(half.f32_values() == first.f32_values());
        CHECK(half.states() == first.states());
        for (size_t i = 0; i < half.parameters().size(); ++i)
          CHECK(half.parameters()[i].to_vector() == cast(first.parameters()[i], low).to_vector());
        CHECK(half.optimizer().loss_scale() == (low == DType::f16 ? 1024 : 1));

        save_snapshot(folder / "low", half.state(), half.position);
        DtypeTraining back(DType::f32, in_8_bits);
        back.step();
        back.step();
        load_snapshot(folder / "low", back.state(true));
        CHECK(back.f32_values() == first.f32_values());
        CHECK(back.states() == first.states());
        CHECK(back.optimizer().loss_scale() == 1);
        back.position = first.position;
        CHECK(back.step() == first.step());  // nothing was lost on the way

        DtypeTraining other(low == DType::f16 ? DType::bf16 : DType::f16, in_8_bits);
        load_snapshot(folder / "low", other.state(true));
        CHECK(other.states() == half.states());
        CHECK(other.f32_values() == half.f32_values());
      }
  });
}

TEST_CASE("snapshot: the loss goes on in 16 bits, and that run is resumed to the bit") {
  test::on_each_device([] {
    const TemporaryFolder folder;
    DtypeTraining first(DType::f32);
    for (int i = 0; i < 20; ++i) first.step();
    save_snapshot(folder / "f32", first.state(), first.position);
    DtypeTraining half(DType::f16);
    half.position = load_snapshot(folder / "f32", half.state(true));
    std::vector<float> losses;
    for (int i = 0; i < 10; ++i) {
      if (i == 5) save_snapshot(folder / "f16", half.state(), half.position);
      const float here = half.step();
      losses.push_back(here);
      CHECK(std::abs(here - first.step()) < 0.01f);
    }
    CHECK(half.optimizer().skipped() == 0);
    DtypeTraining resumed(DType::f16);
    resumed.position = load_snapshot(folder / "f16", resumed.state());
    for (size_t i = 5; i < 10; ++i) CHECK(resumed.step() == losses[i]);
    CHECK(resumed.f32_values() == half.f32_values());
  });
}

TEST_CASE("snapshot: another dtype is an error that names the option" *
          doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  DtypeTraining first(DType::f32);
  first.step();
  save_snapshot(folder / "f32", first.state(), first.position);
  DtypeTraining half(DType::f16);
  const NamedValues before = half.f32_values();
  const std::string fault = fault_of([&] { load_snapshot(folder / "f32", half.state()); });
  CHECK(fault.find("model's dtype, got F32 and F16 of '0.weight'; TrainingState::change_dtype "
                   "(--change-dtype)") != std::string::npos);
  CHECK(half.f32_values() == before);
  save_snapshot(folder / "f16", half.state(), half.position);
  CHECK(fault_of([&] {
          load_snapshot(folder / "f16", first.state());
        }).find("got F16 and F32 of '0.weight'") != std::string::npos);
  DtypeTraining same(DType::f32);
  load_snapshot(folder / "f32", same.state(true));  // allowed, and not needed
  CHECK(same.f32_values() == first.f32_values());
}
