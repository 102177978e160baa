// The first value of a forward pass that is not finite.
#include <limits>

#include "ops/numerics/overflow.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

std::string first_of(const std::function<Tensor()>& forward) {
  const auto found = first_overflow([&] { (void)forward(); });
  return found ? found->str() : "";
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "overflow: the op that made the first value that is not finite") {
  const Tensor w = leaf(4, "w"), x = leaf(4);
  CHECK(first_of([&] { return exp(w * x); }).empty());
  CHECK(first_of([&] { return sum(exp(exp(w + 9.0f) * 9.0f)); }) ==
        "exp (op 4) was the first to overflow, in f32");
  CHECK(first_of([&] {
          return reshape(cast(w, DType::f16), {2, 2}) * 1e6f;
        }) == "affine of 'w' (op 3) was the first to overflow, in f16");
}

TEST_CASE_FIXTURE(CpuDevice, "overflow: what was not finite before is named, whatever made it") {
  const float infinity = std::numeric_limits<float>::infinity();
  Tensor w = leaf(2, "w");
  const Tensor x = tensor(std::vector<float>{1, infinity}, {2});
  const Tensor made = w / 0.0f;  // by an op before the pass
  CHECK(first_of([&] { return w * x; }) ==
        "input 1, which mul (op 1) reads, was not finite before");
  CHECK(first_of([&] {
          const Tensor y = exp(w);
          return y + reshape(made, {1, 2});
        }) == "input 0, which reshape (op 2) reads, was not finite before");
  w.copy_(x);
  CHECK(first_of([&] { return exp(w); }) == "'w', which exp (op 1) reads, was not finite before");
}
