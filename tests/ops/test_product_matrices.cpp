// Products and convolutions by cooperative matrices, in all divisions of a tile among subgroups,
// if a driver has them. A CPU driver is asked for the kernels of GPUs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "ops/ops.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

Tensors products(DType dtype) {
  const auto leaf = [&](const Shape& shape) {
    Tensor t = cast(tensor(some_values(static_cast<int>(shape.numel())), shape), dtype).detach();
    return t.set_requires_grad();
  };
  const Tensor a = leaf({150, 72}), b = leaf({72, 136}), x = leaf({2, 9, 11, 40}),
               w = leaf({72, 3, 3, 40});
  const Tensor product = matmul(a, b), image = conv2d(x, w, {.padding = 1});
  sum(cast(product, DType::f32) * 0.01f).backward();
  sum(cast(image, DType::f32) * 0.01f).backward();
  return {product, image, a.grad(), b.grad(), x.grad(), w.grad()};
}

std::vector<std::vector<float>> products_on(const std::string& name, DType dtype) {
  const DeviceScope scope(Device::create(open_backend(name)));
  std::vector<std::vector<float>> all;
  for (const Tensor& t : products(dtype)) all.push_back(t.to_vector());
  return all;
}

}  // namespace

TEST_CASE("products by cooperative matrices: 4, 8 and 16 subgroups a tile give the same bits") {
  const Env gpu("REWIND_LIKE_GPU", "1");
  // The self-check would take longer than this test, and other tests cover it; some drivers pack
  // 16-bit values wrongly.
  const Without trusts("self-check");
  const Without packing("half-packing");
  try {
    if (!open_backend("vulkan")->info().has("cooperative matrices")) return;
  } catch (const DeviceError&) {
    return;
  }
  const auto expected = products_on("reference", DType::f16);
  std::map<int, std::vector<std::vector<float>>> by;
  for (const int subgroups : {4, 8, 16}) {
    const Env limit("REWIND_LIMITS", fmt::format("tile-subgroups:{}", subgroups));
    by[subgroups] = products_on("vulkan", DType::f16);
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(by[4][i] == by[8][i]);
    CHECK(by[16][i] == by[8][i]);
    CHECK(largest_error(by[4][i], expected[i]) < 4e-3);
  }
}

}  // namespace rw::test
