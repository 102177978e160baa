// Operators with numbers, comparisons, assignments and indexing.
#include "ops/layout/indexing.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

using Ints = std::vector<int32_t>;

Tensor byte_tensor(const std::vector<uint8_t>& values) {
  return tensor(values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_CASE("operators: numbers on both sides, and their gradients") {
  on_each_device([] {
    const Tensor x = tensor({1, 2, -4}, {3}).set_requires_grad();
    CHECK((1.0f - x).to_vector() == Values{0, -1, 5});
    CHECK((2 + x).to_vector() == Values{3, 4, -2});
    CHECK((2.0 / x).to_vector() == Values{2, 1, -0.5f});
    CHECK((3 * x - 1).to_vector() == Values{2, 5, -13});
    CHECK((x / 4).to_vector() == Values{0.25f, 0.5f, -1});
    sum((1 - x) * (2 + x) + 8.0f / x).backward();
    // -(2 + x) + (1 - x) - 8 / x^2
    CHECK(x.grad().to_vector() == Values{-11, -7, 6.5f});
    const Tensor h = tensor({1, 2}, {2}, DType::f16);
    CHECK((1.5 - h).str() == "f16 (2)");
    CHECK((h + tensor({1, 2}, {2})).str() == "f32 (2)");
  });
}

TEST_CASE("operators: whole numbers keep i32, others make it f32") {
  on_each_device([] {
    const Tensor i = ints({7, -7, 16777217});
    CHECK((i + 1).to_ints() == Ints{8, -6, 16777218});
    CHECK((10 - i).to_ints() == Ints{3, 17, -16777207});
    CHECK((i * 2).to_ints() == Ints{14, -14, 33554434});
    CHECK((i / 2).to_ints() == Ints{3, -3, 8388608});
    CHECK((100 / i).to_ints() == Ints{14, -14, 0});
    CHECK((-i).to_ints() == Ints{-7, 7, -16777217});
    CHECK((i - 16777217).to_ints() == Ints{-16777210, -16777224, 0});
    CHECK((i * 0.5).str() == "f32 (3)");
    CHECK((i * 0.5).to_vector()[0] == 3.5f);
    CHECK((1 - byte_tensor({0, 1, 200})).to_ints() == Ints{1, 0, -199});
    CHECK((byte_tensor({0, 1}) * 0.5f).to_vector() == Values{0, 0.5f});
    CHECK(contains(message_of<ValueError>([&] { i + (int64_t{1} << 40); }),
                   "[+] beside i32 (3) a number must fit i32, got 1099511627776"));
    CHECK(
        contains(message_of<ValueError>([&] { i / 0; }), "[/] an i32 tensor must not be divided"));
    CHECK((i + tensor({0.5f, 0, 0}, {3})).to_vector() == Values{7.5f, -7, 16777216});
    CHECK((i * tensor({1, 2, 0}, {3}, DType::f16)).str() == "f16 (3)");
    CHECK((byte_tensor({0, 1, 200}) + byte_tensor({1, 1, 100})).to_ints() == Ints{1, 2, 300});
    CHECK((i - byte_tensor({0, 1, 1})).to_ints() == Ints{7, -8, 16777216});
    CHECK(abs(i).to_ints() == Ints{7, 7, 16777217});
    CHECK(clamp(i, -2.5f, std::numeric_limits<float>::infinity()).to_ints() ==
          Ints{7, -2, 16777217});
    CHECK(sum(byte_tensor({200, 200})).to_ints() == Ints{400});
    CHECK(exp(ints({0, 0})).to_vector() == Values{1, 1});
  });
}

TEST_CASE("masked_select, nonzero: sizes that depend on values") {
  on_each_device([] {
    const Tensor x = tensor({3, 0, 5, 0, 7, 1}, {2, 3}).set_requires_grad();
    CHECK(nonzero(x).to_ints() == Ints{0, 0, 0, 2, 1, 1, 1, 2});
    CHECK(nonzero(x).shape() == Shape{4, 2});
    const Tensor y = masked_select(x, x > 2);
    CHECK(y.to_vector() == Values{3, 5, 7});
    sum(y * tensor({1, 10, 100}, {3})).backward();
    CHECK(x.grad().to_vector() == Values{1, 0, 10, 0, 100, 0});
    CHECK(masked_select(x, tensor(std::vector<uint8_t>{0, 1, 1}, {3})).to_vector() ==
          Values{0, 5, 7, 1});
    CHECK(masked_select(x, x > 9).shape() == Shape{0});
    CHECK(nonzero(full({0, 3}, 1)).shape() == Shape{0, 2});
    CHECK(nonzero(full({}, 1)).shape() == Shape{1, 0});
    const Tensor many = cast(randn({3000}) > 0, DType::f32);
    CHECK(masked_select(many, many != 0).numel() == sum(cast(many, DType::i32)).to_ints()[0]);
    CHECK_THROWS_AS(masked_select(x, x), DTypeError);
    CHECK_THROWS_AS(masked_select(x, full({4}, 1, DType::u8)), ShapeError);
  });
  const DeviceScope scope(Device::create(default_device()->backend().dry()));
  CHECK(contains(message_of<DeviceError>([] { nonzero(full({3}, 1)); }),
                 "[nonzero] the result's shape depends on values"));
}

TEST_CASE("flip: of a tensor of another device than the default" * doctest::test_suite("host")) {
  const auto other = Device::create(open_backend("reference"));
  Tensor x;
  {
    const DeviceScope scope(other);
    x = tensor({1, 2, 3}, {3});
  }
  CHECK(flip(x).to_vector() == Values{3, 2, 1});
}

TEST_CASE("operators: comparisons give u8") {
  on_each_device([] {
    const Tensor x = tensor({1, 2, 3}, {3}), y = tensor({3, 2, 1}, {3});
    CHECK((x < y).to_ints() == Ints{1, 0, 0});
    CHECK((x <= y).to_ints() == Ints{1, 1, 0});
    CHECK((x > y).to_ints() == Ints{0, 0, 1});
    CHECK((x >= y).to_ints() == Ints{0, 1, 1});
    CHECK((x == y).to_ints() == Ints{0, 1, 0});
    CHECK((x != y).to_ints() == Ints{1, 0, 1});
    CHECK((x < 2).to_ints() == Ints{1, 0, 0});
    CHECK((2 < x).to_ints() == Ints{0, 0, 1});
    CHECK((2.5 >= x).to_ints() == Ints{1, 1, 0});
    CHECK((1 != x).to_ints() == Ints{0, 1, 1});
    const Tensor i = ints({-3, 0, 16777217});
    CHECK((i == 16777217).to_ints() == Ints{0, 0, 1});
    CHECK((i > -0.5).to_ints() == Ints{0, 1, 1});
    CHECK((byte_tensor({0, 1, 255}) == 255).to_ints() == Ints{0, 0, 1});
    CHECK((byte_tensor({0, 1, 255}) < 300).to_ints() == Ints{1, 1, 1});
    CHECK((byte_tensor({0, 1, 255}) > -1).to_ints() == Ints{1, 1, 1});
    CHECK(where(x > 1, x, y).to_vector() == Values{3, 2, 3});
    const Tensor kept = x > 1;
    CHECK(kept.dtype() == DType::u8);
    CHECK_FALSE(kept.requires_grad());
  });
  // `if (a < b)` never means to ask whether the result is defined.
  static_assert(!std::is_constructible_v<bool, Comparison>);
  static_assert(std::is_constructible_v<bool, Tensor>);
}

TEST_CASE("operators: x += y makes the handle the result, and is recorded") {
  on_each_device([] {
    const Tensor w = tensor({1, 2}, {2}).set_requires_grad();
    Tensor y = w * 2.0f;
    const Tensor old = y;
    y += w;
    y *= y;
    y -= 1;
    y /= 2;
    CHECK(y.to_vector() == Values{4, 17.5f});
    CHECK(old.to_vector() == Values{2, 4});
    sum(y).backward();
    CHECK(w.grad().to_vector() == Values{9, 18});  // d (9 w^2 - 1) / 2
    Tensor n = ints({1, 2});
    n += 3;
    n *= n;
    CHECK(n.to_ints() == Ints{16, 25});
    Tensor h = tensor({1, 2}, {2}, DType::f16);
    h += tensor({0.5f, 0.25f}, {2});
    CHECK(h.str() == "f16 (2)");
    CHECK(h.to_vector() == Values{1.5f, 2.25f});
  });
}

TEST_CASE_FIXTURE(CpuDevice, "operators: x += y writes over x where nobody else needs it" *
                                 doctest::test_suite("host")) {
  const Tensor y = full({1000}, 1).set_requires_grad();
  Tensor x = y + 1.0f;
  device->take_high_water();
  const uint64_t before = live();
  x += y;
  x -= 2;
  CHECK(device->take_high_water() == before);
  CHECK(x.to_vector() == Values(1000, 1));
}

TEST_CASE_FIXTURE(CpuDevice, "operators: x += y refuses what would be lost or change silently" *
                                 doctest::test_suite("host")) {
  Tensor w = full({2, 3}, 1).set_requires_grad();
  w.impl().name = "weight";
  CHECK(contains(message_of<AutogradError>([&] { w += 1; }),
                 "[+=] would make this handle of 'weight'"));
  {
    const NoGrad guard;
    CHECK(contains(message_of<AutogradError>([&] { w *= w; }), "[*=] would make this handle"));
    Tensor row = w[0];
    w.copy_(w + 1);  // as the message advises
    CHECK(w.to_vector() == Values(6, 2));
  }
  Tensor buffer;
  {
    const PurposeScope scope(Purpose::parameter);
    buffer = full({3}, 1);
  }
  CHECK_THROWS_AS(buffer *= 0.9f, AutogradError);

  Tensor x = full({3}, 1), i = ints({1, 2, 3}), mask = byte_tensor({1, 0});
  CHECK(contains(message_of<ShapeError>([&] {
                   x += full({2, 3}, 1);
                 }),
                 "[+=] the result must have the shape of f32 (3), got f32 (2, 3)"));
  CHECK_THROWS_AS(i += x, DTypeError);
  CHECK(contains(message_of<DTypeError>([&] { i /= 0.5; }),
                 "[/=] the result must have the dtype of i32 (3), got the number 0.5"));
  CHECK_THROWS_AS(mask += 1, DTypeError);
  CHECK_THROWS_AS(mask += mask, DTypeError);
  CHECK_THROWS_AS(i /= 0, ValueError);
  const auto other = Device::create(open_backend("reference"));
  CHECK_THROWS_AS(x += full({3}, 1, DType::f32, other), DeviceError);
  // The handles still have the old values.
  CHECK(x.to_vector() == Values(3, 1));
  x += i;
  CHECK(x.to_vector() == Values{2, 3, 4});
  CHECK(i.to_ints() == Ints{1, 2, 3});
  CHECK(mask.to_ints() == Ints{1, 0});
}

TEST_CASE_FIXTURE(CpuDevice, "operators: x += y without memory leaves x as it was" *
                                 doctest::test_suite("host")) {
  const Tensor y = full({100000}, 2).set_requires_grad();
  Tensor x = y * 1.0f;
  device->set_memory_limit(device->memory_report().reserved);
  std::vector<Tensor> filler;
  const auto fill_up = [&] {
    while (true) filler.push_back(empty({100000}, DType::f32));
  };
  CHECK_THROWS_AS(fill_up(), OutOfMemory);
  const Tensor before = x;
  CHECK_THROWS_AS(x *= y, OutOfMemory);
  REQUIRE(x.defined());
  CHECK(x.pointer() == before.pointer());
  filler.clear();
  CHECK(x.to_vector() == Values(100000, 2));
}

TEST_CASE("operators: x[i] is a view without the first axis") {
  on_each_device([] {
    const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {3, 2}).set_requires_grad();
    CHECK(x[1].to_vector() == Values{3, 4});
    CHECK(x[-1].to_vector() == Values{5, 6});
    CHECK(x[2][0].item() == 5);
    sum(x[-3] * 2.0f).backward();
    CHECK(x.grad().to_vector() == Values{2, 2, 0, 0, 0, 0});
    CHECK(contains(message_of<ShapeError>([&] { x[3]; }),
                   "[select] the index must be in [-3, 3), got 3 for axis 0 of f32 (3, 2)"));
    CHECK_THROWS_AS(x[-4], ShapeError);
    CHECK_THROWS_AS(x[0][0][0], ShapeError);
  });
}

}  // namespace rw::test
