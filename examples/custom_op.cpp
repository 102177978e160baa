// An op of your own: forward, gradient, and what the gradient reads. It then is replayed, dropped,
// planned and predicted like those of the library. Usage: custom_op [DEVICE]
#include <rewind/rewind.h>

#include <cmath>
#include <cstdio>

namespace {

// y = x tanh(softplus(x)), "mish" (Misra 2019). Written with library ops it would keep every value
// between x and y for the gradient; as an op of its own it keeps x alone.
std::vector<rw::Tensor> forward(const std::any&, std::span<rw::Tensor> inputs) {
  const rw::Tensor& x = inputs[0];
  return {x * rw::tanh(rw::softplus(x))};
}

// dy/dx = t + x (1 - t^2) sigmoid(x) with t = tanh(softplus(x)). Run without a tape.
std::vector<rw::Tensor> gradient(rw::Record& record, std::span<rw::Tensor> dy) {
  const rw::Tensor& x = record.input(0);
  const rw::Tensor t = rw::tanh(rw::softplus(x));
  return {dy[0] * (t + x * (1 - rw::square(t)) * rw::sigmoid(x))};
}

const rw::Op mish_op = {
    .name = "mish",
    .forward = forward,
    .vjp = gradient,
    .saves = [](const std::any&, uint32_t) { return rw::Saves{.inputs = 1}; },  // input 0
};

rw::Tensor mish(rw::Tensor x) {
  return rw::apply1(mish_op, {}, {std::move(x)});
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "vulkan"));
  rw::manual_seed(1);
  rw::Tensor x = rw::randn({1000});
  x.set_requires_grad();

  rw::sum(mish(x)).backward();
  const std::vector<float> ours = x.grad().to_vector();
  x.set_grad({});
  rw::Tensor y;
  {
    const auto segment = rw::checkpoint();  // what lies between x and y is dropped,
    y = mish(mish(x));
  }
  rw::sum(std::move(y)).backward();  // and replayed here
  x.set_grad({});

  // Finite differences, in f32: about three digits.
  const float h = 1e-2f;
  const rw::NoGrad no_grad;
  const std::vector<float> slope = ((mish(x + h) - mish(x - h)) / (2 * h)).to_vector();
  float worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(ours[i] - slope[i]));
  std::printf("gradient and finite differences differ by at most %.1e\n", worst);
  return worst < 2e-3f ? 0 : 1;
}
