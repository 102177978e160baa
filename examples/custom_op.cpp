// An op of your own: forward, gradient, and what the gradient reads. It is then replayed, dropped,
// planned and predicted like those of the library. Usage: custom_op [DEVICE]
#include <rewind/rewind.h>

#include <cmath>
#include <cstdio>

namespace {

// y = x + sin(x)^2, "snake" (Ziyin et al. 2020). Written with library ops it would keep sin(x)
// beside x for the gradient; as an op of its own it keeps x alone.
std::vector<rw::Tensor> forward(const std::any&, std::span<rw::Tensor> inputs) {
  const rw::Tensor& x = inputs[0];
  return {x + rw::square(rw::sin(x))};
}

// dy/dx = 1 + 2 sin(x) cos(x). It runs without a tape.
std::vector<rw::Tensor> gradient(rw::Record& record, std::span<rw::Tensor> dy) {
  const rw::Tensor& x = record.input(0);
  return {dy[0] * (1 + rw::sin(2 * x))};
}

const rw::Op snake_op = {
    .name = "snake",
    .forward = forward,
    .vjp = gradient,
    .saves = [](const std::any&, uint32_t) { return rw::Saves{.inputs = 1}; },  // input 0
};

rw::Tensor snake(rw::Tensor x) {
  return rw::apply1(snake_op, {}, {std::move(x)});
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  rw::Tensor x = rw::randn({1000});
  x.set_requires_grad();

  rw::sum(snake(x)).backward();
  const std::vector<float> ours = x.grad().to_vector();
  x.set_grad({});
  rw::Tensor y = x;
  for (int i = 0; i < 4; ++i) {
    const auto segment = rw::checkpoint();  // values between two of them are dropped
    y = snake(snake(std::move(y)));
  }
  rw::sum(std::move(y)).backward();  // and replayed here
  x.set_grad({});

  // Finite differences, in f32: about three digits.
  const float h = 1e-2f;
  const rw::NoGrad no_grad;
  const std::vector<float> slope = ((snake(x + h) - snake(x - h)) / (2 * h)).to_vector();
  float worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(ours[i] - slope[i]));
  std::printf("gradient and finite differences differ by at most %.1e\n", worst);
  return worst < 2e-3f ? 0 : 1;
}
