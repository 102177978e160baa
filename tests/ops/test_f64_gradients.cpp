// Every row of the op table in double: gradients against differences, element by element, and the
// bytes that kernels touch against those that they declare for barriers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/open.h"
#include "backends/vulkan/commands/hazards.h"
#include "core/autograd/gradients.h"
#include "ops/list/op_list.h"
#include "tests/op_table/f64_backend.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

// Compares the gradients of an op with differences of its outputs, and gradients of gradients with
// differences of gradients, all in double (tests/op_table/f64_backend.h).
class F64Check {
 public:
  // With `order` 2 it checks the gradients of the weighted sum of all first gradients.
  F64Check(F64Backend& backend, const OpCase& row, int order = 1)
      : backend_(backend), row_(row), order_(order), points_(make_inputs(row)) {
    for (const Tensor& t : points_)
      values_.push_back(is_float(t.dtype()) ? backend.values(t) : std::vector<double>());
  }

  // Checks every gradient that the row's inputs need.
  void run() {
    std::vector<std::vector<double>> gradients = analytic();
    for (size_t k = 0; k < points_.size(); ++k) {
      if (!row_.inputs[k].differentiable || values_[k].empty()) continue;
      // A gradient that is constant has no gradient of its own.
      if (order_ == 2 && gradients[k].empty()) gradients[k].resize(values_[k].size());
      CHECK_MESSAGE(gradients[k].size() == values_[k].size(),
                    row_.name << ": input " << k << " has no gradient");
      if (gradients[k].size() != values_[k].size()) continue;
      elements(k, gradients[k]);
      directions(k, gradients[k]);
      backend_.set_values(points_[k], values_[k]);
    }
  }

 private:
  // Returns the gradients of `evaluate`, in double.
  std::vector<std::vector<double>> analytic() {
    const Tensors inputs = make_inputs(row_);
    if (order_ == 1) {
      evaluate(inputs, row_.run);
    } else {
      Tensor total;
      const Tensors gradients = first_gradients(inputs, true);
      for (size_t k = 0; k < gradients.size(); ++k) {
        const Tensor& g = gradients[k];
        if (!g.defined() || !g.requires_grad()) continue;
        const Tensor part = sum(g * host_tensor(loss_weights(g.shape(), k), g.shape(), g.dtype()));
        total = total.defined() ? total + part : part;
      }
      if (total.defined()) total.backward();
    }
    std::vector<std::vector<double>> all;
    for (const Tensor& t : inputs)
      all.push_back(t.grad().defined() ? backend_.values(contiguous(t.grad()))
                                       : std::vector<double>());
    return all;
  }

  // Returns the gradient of a loss for each input, undefined if there is none. The loss is not
  // linear in the outputs, so that their gradients depend on the inputs.
  Tensors first_gradients(const Tensors& inputs, bool create_graph) const {
    manual_seed(7);
    Tensor loss;
    Tensors wanted, all;
    const Tensors outputs = row_.run(inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& y = outputs[k];
      if (!y.requires_grad()) continue;
      const Tensor weight = host_tensor(loss_weights(y.shape(), k), y.shape(), DType::f32);
      const Tensor wide = cast(y, DType::f32), part = sum((wide + square(wide) * 0.25f) * weight);
      loss = loss.defined() ? loss + part : part;
    }
    for (const Tensor& x : inputs)
      if (x.requires_grad()) wanted.push_back(x);
    if (!loss.defined() || wanted.empty()) return all;
    const Tensors made = grad({loss}, wanted, {.create_graph = create_graph, .allow_unused = true});
    auto next = made.begin();
    for (const Tensor& x : inputs) all.push_back(x.requires_grad() ? *next++ : Tensor());
    return all;
  }

  // Returns the terms of the loss at the current inputs, or of the sum of its gradients.
  std::vector<double> terms() const {
    std::vector<double> all;
    if (order_ == 2) {
      const Tensors gradients = first_gradients(points_, false);
      for (size_t k = 0; k < gradients.size(); ++k) {
        if (!gradients[k].defined()) continue;
        const std::vector<double> g = backend_.values(contiguous(gradients[k].detach()));
        const std::vector<float> w = loss_weights(gradients[k].shape(), k);
        for (size_t i = 0; i < g.size(); ++i) all.push_back(g[i] * w[i]);
      }
      return all;
    }
    const NoGrad guard;
    manual_seed(7);
    const Tensors outputs = row_.run(points_);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!is_float(outputs[k].dtype())) continue;
      const std::vector<double> y = backend_.values(contiguous(outputs[k]));
      const std::vector<float> w = loss_weights(outputs[k].shape(), k);
      for (size_t i = 0; i < y.size(); ++i) all.push_back(y[i] * w[i]);
    }
    return all;
  }

  // A slope by differences, and how far their rounding may have moved it.
  struct Slope {
    double value = 0, rounding = 0;
  };

  // Returns the loss's slope if `move` moves input k. Differences are taken term by term, so that
  // terms that do not change add no rounding.
  template <class Move>
  Slope difference(size_t k, const Move& move) {
    const auto at = [&](double step) {
      std::vector<double> moved = values_[k];
      move(moved, step);
      backend_.set_values(points_[k], moved);
      return terms();
    };
    const std::vector<double> up = at(row_.step), down = at(-row_.step);
    Slope slope;
    for (size_t i = 0; i < up.size(); ++i) {
      if (up[i] == down[i]) continue;
      slope.value += (up[i] - down[i]) / (2 * row_.step);
      slope.rounding += 0x1p-52 * std::abs(up[i]) / row_.step;
    }
    return slope;
  }

  // Checks elements one by one: all elements of small inputs.
  void elements(size_t k, const std::vector<double>& gradient) {
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    const size_t most = most_elements(), stride = (gradient.size() + most - 1) / most;
    for (size_t i = 0; i < gradient.size(); i += stride) {
      const auto move = [i](std::vector<double>& x, double s) { x[i] += s; };
      const double g = gradient[i];
      const auto [expected, rounding] = difference(k, move);
      const double bound = 1e-5 * std::abs(g) + 1e-8 * largest + rounding;
      CHECK_MESSAGE(std::abs(g - expected) <= bound,
                    row_.name << ": input " << k << " element " << i << ": gradient " << g
                              << ", differences give " << expected);
    }
  }

  // Checks all elements at once, each by a step of its own random sign: one wrong element among
  // thousands shows.
  void directions(size_t k, const std::vector<double>& gradient) {
    std::mt19937 random(static_cast<uint32_t>(k));
    std::vector<double> signs(gradient.size());
    for (double& sign : signs) sign = random() % 2 == 0 ? 1 : -1;
    double along = 0, size = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      along += gradient[i] * signs[i];
      size += std::abs(gradient[i]);
    }
    const auto [expected, rounding] = difference(k, [&](std::vector<double>& x, double s) {
      for (size_t i = 0; i < x.size(); ++i) x[i] += s * signs[i];
    });
    CHECK_MESSAGE(std::abs(along - expected) <= 3e-7 * size + rounding,
                  row_.name << ": input " << k << " along a direction: gradient " << along
                            << ", differences give " << expected << ", the size is " << size);
  }

  // Rows with much work get fewer elements.
  size_t most_elements() const {
    size_t numbers = 1;
    for (const std::vector<double>& v : values_) numbers += v.size();
    return order_ == 1 ? std::clamp<size_t>(20000 / numbers, 8, 64) : 6;
  }

  F64Backend& backend_;
  const OpCase& row_;
  const int order_;
  Tensors points_;
  std::vector<std::vector<double>> values_;
};

struct F64Device {
  std::shared_ptr<Device> device;
  F64Backend* backend = nullptr;

  F64Device() {
    auto made = std::make_unique<F64Backend>();
    backend = made.get();
    device = Device::create(std::move(made));
    set_default_device(device);
  }
};

std::vector<vulkan::Use> declared(const KernelCall& call) {
  std::vector<vulkan::Use> all;
  for (const Binding& b : call.bindings) all.push_back(vulkan::use_of(b));
  return all;
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("f64: kernels keep doubles behind tensors of every type") {
  F64Device f64;
  Tensor x = empty({3}), y = empty({2}, DType::f16);
  f64.backend->set_values(x, {1.0 / 3, 1e-3, 2});
  CHECK(f64.backend->values(x * 3.0f) == std::vector<double>{1, 3e-3, 6});
  f64.backend->set_values(y, {1.0 / 3, 1e-9});
  CHECK(f64.backend->values(cast(y, DType::f32)) == std::vector<double>{1.0 / 3, 1e-9});
  x.copy_from(std::vector<float>{1.0f / 3, 0, 2});
  CHECK(f64.backend->values(x) == std::vector<double>{double{1.0f / 3}, 0, 2});
}

TEST_CASE("ops: gradients are those of f64, element by element") {
  F64Device f64;
  for (const OpCase& row : op_cases()) {
    try {
      F64Check(*f64.backend, row).run();
    } catch (const Error& e) {
      FAIL_CHECK(row.name << ": " << std::string(e.what()));
    }
  }
}

TEST_CASE("ops: gradients of gradients are those of f64, or the op's name is an error") {
  F64Device f64;
  for (const OpCase& row : op_cases()) {
    // The graphs of these scans have as many terms as there are pairs of places, millions here.
    if (row.name == "cumprod in parts" || row.name == "logcumsumexp in parts") continue;
    try {
      F64Check(*f64.backend, row, 2).run();
    } catch (const AutogradError& e) {
      const std::string said = e.what(), before = "create_graph: the gradient of '";
      const size_t at = said.find(before);
      CHECK_MESSAGE(at != std::string::npos, row.name << ": " << said);
      if (at == std::string::npos) continue;
      const size_t name = at + before.size();
      const std::string refused = said.substr(name, said.find('\'', name) - name);
      const auto op = std::ranges::find(op_list(), refused, &OpInfo::name);
      CHECK_MESSAGE((op != op_list().end() && op->order == 1), refused);
    } catch (const Error& e) {
      FAIL_CHECK(row.name << ": " << std::string(e.what()));
    }
  }
}

TEST_CASE("ops: first gradients have the same bits with their graph") {
  set_default_device(open_backend("reference"));
  for (const DType dtype : {DType::f32, DType::f16})
    for (const OpCase& row : op_cases()) {
      const auto gradients = [&](bool create_graph) {
        const Tensors inputs = make_inputs(row, dtype);
        manual_seed(7);
        Tensor loss;
        for (const Tensor& y : row.run(inputs)) {
          if (!y.requires_grad()) continue;
          const Tensor part = sum(cast(y, DType::f32));
          loss = loss.defined() ? loss + part : part;
        }
        Tensors wanted;
        for (const Tensor& x : inputs)
          if (x.requires_grad()) wanted.push_back(x);
        HostValues values;
        if (!loss.defined()) return values;
        const Tensors made =
            grad({loss}, wanted, {.create_graph = create_graph, .allow_unused = true});
        Tensor total;
        for (const Tensor& g : made) {
          values.push_back(g.defined() ? g.to_vector() : std::vector<float>());
          if (!create_graph || !g.defined() || !g.requires_grad()) continue;
          const Tensor part = sum(square(cast(g, DType::f32)));
          total = total.defined() ? total + part : part;
        }
        if (total.defined()) total.backward();  // in every dtype
        return values;
      };
      // Their graph has other terms, which can be differentiated wherever elements are 0.
      if (row.name.starts_with("prod") || row.name.starts_with("cumprod") ||
          row.name.starts_with("logcumsumexp"))
        continue;
      HostValues with;
      try {
        with = gradients(true);
      } catch (const AutogradError& e) {  // the test above says which
        CHECK_MESSAGE(
            std::string(e.what()).find("create_graph: the gradient of '") != std::string::npos,
            row.name << ": " << e.what());
        continue;
      } catch (const Error& e) {
        FAIL_CHECK(row.name << ": " << e.what());
        continue;
      }
      const HostValues without = gradients(false);
      CHECK_MESSAGE(with.size() == without.size(), row.name);
      for (size_t k = 0; k < with.size() && k < without.size(); ++k)
        CHECK_MESSAGE((with[k].size() == without[k].size() &&
                       (with[k].empty() || std::memcmp(with[k].data(), without[k].data(),
                                                       with[k].size() * sizeof(float)) == 0)),
                      row.name << " " << name(dtype) << ": gradient " << k);
    }
}

TEST_CASE("ops: kernels touch what the recorder of barriers knows of, and nothing else") {
  F64Device f64;
  f64.backend->watch(declared);
  for (const DType dtype : {DType::f32, DType::f16})
    for (const OpCase& row : op_cases()) {
      evaluate(make_inputs(row, dtype), row.run);
      const auto culprits = f64.backend->take_culprits();
      CHECK_MESSAGE(culprits.empty(), row.name << ": "
                                               << fmt::format("{}", fmt::join(culprits, "; "))
                                               << ", which is not declared");
    }
  CHECK(f64.backend->accesses() > 1'000'000);
}

TEST_SUITE_END();

}  // namespace rw::test
