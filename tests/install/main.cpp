// Fits y = sin(x) with a small network. Usage: example [auto | cpu | vulkan]
#include <rewind/rewind.h>

#include <cstdio>

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);

  rw::Sequential model;
  model.emplace<rw::Linear>(1, 64);
  for (int i = 0; i < 4; ++i) {
    auto& block = model.emplace<rw::Sequential>();
    block.emplace<rw::Tanh>();
    block.emplace<rw::Linear>(64, 64);
    block.emplace<rw::Tanh>();
    block.emplace<rw::Linear>(64, 64);
  }
  model.emplace<rw::Linear>(64, 1);
  rw::Adam optimizer(model.parameters(), {.lr = 0.003f});

  float first = 0, last = 0;
  for (int step = 0; step <= 200; ++step) {
    rw::Tensor x = rw::rand({256, 1}, -3, 3);
    rw::Tensor y = x;
    for (size_t i = 0; i < model.size(); ++i) {
      auto segment = rw::checkpoint();  // drop what is inside, compute it again in backward
      y = model[i](y);
    }
    rw::Tensor loss = rw::mse_loss(y, rw::sin(x));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, last = loss.item());
    if (step == 0) first = last;
  }
  return last < first / 10 ? 0 : 1;
}
