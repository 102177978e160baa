// Every row of the op table in double: gradients against differences, element by element, and the
// bytes that kernels touch against those that they declare for barriers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backends/open.h"
#include "backends/vulkan/commands/hazards.h"
#include "ops/list/op_list.h"
#include "tests/op_table/f64_check.h"

namespace rw::test {

namespace {

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

std::vector<Bytes> declared(const KernelCall& call) {
  std::vector<Bytes> all;
  for (const Binding& b : call.bindings) {
    const vulkan::Use use = vulkan::use_of(b);
    all.push_back({use.block, use.begin, use.end, use.writes});
  }
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
