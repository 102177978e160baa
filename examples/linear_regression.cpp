// Fits a straight line through noisy points: tensors, gradients, an optimizer, and nothing else.
// Usage: linear_regression [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);

  // 512 points of y = 3x - 2, measured with an error of 0.1.
  const rw::Tensor x = rw::rand({512, 1}, -1, 1);
  const rw::Tensor y = 3 * x - 2 + 0.1 * rw::randn({512, 1});

  rw::Tensor slope = rw::zeros({1, 1}), offset = rw::zeros({1});
  slope.set_requires_grad();
  offset.set_requires_grad();
  rw::SGD optimizer(std::vector{slope, offset}, {.lr = 0.5f});

  for (int step = 0; step <= 50; ++step) {
    const rw::Tensor loss = rw::mse_loss(x * slope + offset, y);  // runs now and is recorded
    loss.backward();  // the tape in reverse: slope.grad(), offset.grad()
    optimizer.step();
    optimizer.zero_grad();
    if (step % 10 == 0)
      std::printf("step %2d  loss %.4f  y = %.3f x %+.3f\n", step, loss.item(), slope.item(),
                  offset.item());
  }
}
