// Fits y = sin(x) with a small network. Usage: example [auto | cpu | vulkan]
#include <rewind/rewind.h>

#include <cstdio>

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);

  rw::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model.emplace<rw::Linear>(i ? 64 : 1, 64);
    model.emplace<rw::Tanh>();
  }
  model.emplace<rw::Linear>(64, 1);
  const rw::BlockCheckpoints segments;  // drop activations in forward, recompute them in backward
  rw::Adam optimizer(model.parameters(), {.lr = 0.003f});
  for (int step = 0; step < 200; ++step) {
    const rw::Tensor x = rw::rand({1024, 1}, -3, 3);
    optimizer.backward(rw::mse_loss(model(x), rw::sin(x)));
    optimizer.step();
    optimizer.zero_grad();
  }

  const rw::Tensor x = rw::rand({1024, 1}, -3, 3);
  const float error = rw::mse_loss(model(x), rw::sin(x)).item();
  std::printf("mean squared error %.5f, peak %.0f KiB\n", error,
              static_cast<double>(rw::default_device()->memory_report().peak) / 1024);
  return error < 0.05f ? 0 : 1;
}
