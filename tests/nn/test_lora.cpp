// Adapters around linear layers: what they compute, in each form and dtype, and their gradients.
#include "nn/init.h"
#include "ops/numeric.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/nn/lora_fixture.h"
#include "tests/op_table/f64_backend.h"

namespace rw::test {

namespace {

// PEFT's results for TwoLayers, with parameters from a hash of their names.
struct LoraGolden {
  const char* name;
  LoraOptions options;
  std::vector<GoldenRow> rows;  // y, then gradients of sum(y + y^2)
};
#include "tests/goldens/lora.inc"

// Returns what an adapter computes, by its definition.
Tensor defined_by(const Lora& adapter, const Tensor& weight, const Tensor& x) {
  const LoraOptions& o = adapter.options();
  Tensor sum = weight + matmul(adapter.B, adapter.A) * o.scale();
  if (o.dora) {
    const Tensor lengths = norm(sum.detach(), 2, {1});
    sum = sum * unsqueeze(adapter.magnitude / lengths, 1);
  }
  return linear(x, sum, adapter.layer().bias);
}

std::vector<std::vector<float>> lora_gradients(const Lora& adapter, const Tensor& y) {
  sum(square(y) + y).backward();
  std::vector<std::vector<float>> found;
  for (Tensor p : {adapter.A, adapter.B, adapter.magnitude}) {
    if (!p) continue;
    found.push_back(p.grad().to_vector());
    p.set_grad({});
  }
  return found;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "lora: outputs and gradients are those of the definition") {
  for (const bool packed : {false, true}) {
    for (const LoraOptions& options : every_form) {
      CAPTURE(packed);
      CAPTURE(options.dora);
      CAPTURE(options.rank_stabilized);
      manual_seed(4);
      TwoLayers model;
      Tensor weight = model.first.weight.detach();
      if (packed) {
        auto made = std::make_unique<PackedLayer>(model.first);
        weight = made->dense();
        model.first.substitute(std::move(made));
        model.first.release_weight();
      }
      Lora& adapter = *add_lora(model, options).front().adapter;
      CHECK(adapter.options().scale() ==
            doctest::Approx(options.rank_stabilized ? 3 / std::sqrt(2.0) : 1.5));
      init::normal_(adapter.B, 0, 0.5f);
      if (adapter.magnitude) init::uniform_(adapter.magnitude, 0.5f, 2);
      Tensor x = rand({5, 6}, -1, 1).set_requires_grad();
      const Tensor wanted = defined_by(adapter, weight, x);
      const std::vector<float> value = wanted.to_vector();
      const auto gradients = lora_gradients(adapter, wanted);
      const std::vector<float> of_x = x.grad().to_vector();
      x.set_grad({});
      const Tensor y = model.first(x);
      check_lora_values(y.to_vector(), value, 1e-5);
      const auto found = lora_gradients(adapter, y);
      REQUIRE(found.size() == gradients.size());
      for (size_t i = 0; i < found.size(); ++i) check_lora_values(found[i], gradients[i], 1e-4);
      check_lora_values(x.grad().to_vector(), of_x, 1e-4);
    }
  }
}

TEST_CASE_FIXTURE(CpuDevice, "lora: outputs and gradients are PEFT's") {
  REQUIRE(lora_goldens.size() == 4);
  for (const auto& [form, options, rows] : lora_goldens) {
    CAPTURE(form);
    TwoLayers model;
    add_lora(model, options);
    fill_from_hash(model, [](const std::string& name, const Tensor&) {
      return name.ends_with("magnitude_vector");
    });
    const Tensor y = model(tensor(hashed("x", 30), {5, 6}));
    check_row(y.detach(), rows[0], 1e-5);
    sum(y + square(y)).backward();
    size_t found = 1;
    for (Tensor p : model.parameters()) {
      if (!p.requires_grad()) continue;
      REQUIRE(found < rows.size());
      CHECK(p.impl().name == rows[found].name);
      check_row(p.grad(), rows[found++], 2e-5);
      p.set_grad({});
    }
    CHECK(found == rows.size());
  }
}

// DoRA's lengths are constants to A and B, so that these have no such differences.
TEST_CASE("lora: gradients are those of differences in f64") {
  for (const LoraOptions& options : every_form) {
    auto made = std::make_unique<F64Backend>();
    F64Backend& f64 = *made;
    const auto device = Device::create(std::move(made));
    set_default_device(device);
    manual_seed(2);
    TwoLayers model;
    const auto adapters = add_lora(model, options);
    for (const NamedLora& a : adapters) init::normal_(a.adapter->B, 0, 0.5f);
    const Tensor x = rand({3, 6}, -1, 1);
    const auto loss = [&] { return sum(square(model(x))); };
    loss().backward();
    for (const NamedLora& a : adapters) {
      std::vector<Tensor> points = {a.adapter->magnitude};
      if (!options.dora) points = {a.adapter->A, a.adapter->B};
      for (const Tensor& p : points) {
        const std::vector<double> gradient = f64.values(p.grad());
        std::vector<double> at = f64.values(p.detach());
        const NoGrad guard;
        for (size_t i = 0; i < at.size(); ++i) {
          const double middle = at[i], step = 1e-5;
          double total[2];
          for (const int side : {0, 1}) {
            at[i] = middle + (side == 1 ? step : -step);
            f64.set_values(p, at);
            total[side] = f64.values(loss())[0];
          }
          at[i] = middle;
          f64.set_values(p, at);
          CHECK(gradient[i] == doctest::Approx((total[1] - total[0]) / (2 * step)).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE_FIXTURE(CpuDevice, "lora: lengths follow the weights, and rows of zeros stay finite") {
  manual_seed(3);
  TwoLayers model;
  Lora& adapter = *add_lora(model, {.rank = 2, .dora = true}).front().adapter;
  const Tensor x = rand({2, 6});
  model.first.weight.copy_(rand({4, 6}));  // as a snapshot that is loaded
  adapter.magnitude.copy_(norm(model.first.weight.detach(), 2, {1}));
  check_lora_values(model.first(x).to_vector(),
                    linear(x, model.first.weight.detach(), model.first.bias.detach()).to_vector(),
                    1e-6);
  init::zeros_(model.first.weight);
  init::zeros_(adapter.magnitude);
  check_lora_values(model.first(x).to_vector(),
                    expand(model.first.bias.detach(), {2, 4}).to_vector(), 1e-6);
}

TEST_CASE_FIXTURE(CpuDevice, "lora: dropout of the adapter's input, in training only") {
  for (const bool dora : {false, true}) {
    CAPTURE(dora);
    manual_seed(5);
    TwoLayers model(64, 32);
    Lora& adapter = *add_lora(model, {.rank = 4, .dropout = 0.5f, .dora = dora}).front().adapter;
    init::normal_(adapter.B, 0, 0.5f);
    if (dora) adapter.magnitude.copy_(adapter.magnitude.detach() * 3.0f);
    const Tensor x = rand({8, 64}, 0.5f, 1), base = linear(x, model.first.weight.detach());
    const Tensor plain = base + matmul(matmul(x, transpose(adapter.A.detach(), 0, 1)),
                                       transpose(adapter.B.detach(), 0, 1)) *
                                    adapter.options().scale();
    const NoGrad guard;
    manual_seed(9);
    const Tensor dropped = dropout(x, 0.5f, default_generator());
    manual_seed(9);
    const std::vector<float> trained = model.first(x).to_vector();
    model.eval();
    const std::vector<float> evaluated = model.first(x).to_vector();
    // By PEFT's formula: the base's share of DoRA's factor sees the dropped input, too.
    const auto low = [&](const Tensor& at) {
      return linear(linear(at, adapter.A.detach()), adapter.B.detach()) * adapter.options().scale();
    };
    const auto wanted = [&](const Tensor& at) {
      Tensor y = base + low(at);
      if (dora) {
        const Tensor lengths =
            norm(model.first.weight.detach() +
                     matmul(adapter.B.detach(), adapter.A.detach()) * adapter.options().scale(),
                 2, {1});
        const Tensor factor = adapter.magnitude.detach() / lengths;
        y = base + (factor - 1) * linear(at, model.first.weight.detach()) + factor * low(at);
      }
      return (y + model.first.bias.detach()).to_vector();
    };
    check_lora_values(trained, wanted(dropped), 1e-4);
    check_lora_values(evaluated, wanted(x), 1e-4);
    CHECK(trained != evaluated);
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "lora: f32 adapters of 16-bit weights, and of f32 ones under Autocast") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const bool autocast : {false, true}) {
      for (const bool dora : {false, true}) {
        CAPTURE(name(dtype));
        CAPTURE(autocast);
        CAPTURE(dora);
        manual_seed(6);
        TwoLayers model;
        if (!autocast) model.to(dtype);
        Lora& adapter = *add_lora(model, {.rank = 2, .alpha = 4, .dora = dora}).front().adapter;
        CHECK(adapter.A.dtype() == DType::f32);
        init::normal_(adapter.B, 0, 0.5f);
        const Tensor x = rand({5, 6}, -1, 1);
        const std::vector<float> exact =
            defined_by(adapter, cast(model.first.weight.detach(), DType::f32), x).to_vector();
        Tensor y;
        {
          const Autocast scope(dtype, autocast);
          y = model.first(autocast ? x : cast(x, dtype));
        }
        CHECK(y.dtype() == dtype);
        check_lora_values(cast(y.detach(), DType::f32).to_vector(), exact,
                          dtype == DType::f16 ? 4e-3 : 3e-2);
        sum(cast(y, DType::f32)).backward();
        CHECK(adapter.B.grad().dtype() == DType::f32);
        CHECK(max(abs(adapter.B.grad())).item() > 0);
        for (const Tensor& p : model.parameters()) Tensor(p).set_grad({});
      }
    }
  }
}

TEST_SUITE_END();

}  // namespace rw::test
