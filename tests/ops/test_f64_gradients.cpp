// Every row of the op table in double: gradients against differences, element by element, and the
// bytes that kernels touch against those that they declare for barriers.
#include <fmt/format.h>

#include "backends/vulkan/commands/hazards.h"
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
