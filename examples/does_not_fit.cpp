// A model that does not fit on this device, and four ways to train it all the same:
// docs/tutorial.md. Usage: does_not_fit [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t width = 512, batch = 1024;
constexpr uint64_t memory = 52 << 20;  // the bytes that this device may have

class Net : public rw::Module {
 public:
  Net() {
    register_module("layers", layers_);
    for (int i = 0; i < 16; ++i) {
      layers_.emplace<rw::Linear>(width, width);
      layers_.emplace<rw::ReLU>();
    }
  }
  rw::Tensor forward(rw::Tensor x) override { return layers_(std::move(x)); }

 private:
  rw::Sequential layers_;
};

void take_step(Net& net, rw::Optimizer& optimizer, const rw::Tensor& x, rw::DType dtype) {
  rw::Tensor loss;
  {
    const rw::Autocast autocast(dtype);
    loss = rw::mean(rw::square(rw::cast(net(x), rw::DType::f32)));
  }
  optimizer.backward(loss);
  optimizer.step();
  optimizer.zero_grad();
}

// Takes two updates of `batch` samples; prints their memory, or why they failed.
bool train(const char* how, rw::DType dtype, uint32_t parts) {
  rw::default_device()->reset_peak();
  try {
    Net net;
    rw::Accumulate optimizer(rw::SGD(net.parameters(), {.lr = 0.1f}), parts);
    for (uint32_t i = 0; i < 2 * parts; ++i)
      take_step(net, optimizer, rw::randn({batch / parts, width}), dtype);
    const auto peak = rw::default_device()->memory_report().peak;
    std::printf("%-36s fits: %s\n", how, rw::format_bytes(peak).c_str());
    return true;
  } catch (const rw::OutOfMemory& error) {
    const std::string text = error.what();
    std::printf("%-36s %s\n", how, text.substr(0, text.find('\n')).c_str());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"), memory);
  rw::manual_seed(1);
  bool right = !train("as it is", rw::DType::f32, 1);
  right &= train("four micro-batches", rw::DType::f32, 4);
  {
    const rw::BlockCheckpoints segments;  // Sequential drops activations, and makes them again
    right &= train("checkpoint segments", rw::DType::f32, 1);
  }
  {  // As little recomputation as 44 MiB take; the rest of the memory is for what blocks waste.
    const rw::AutoRecompute recompute({.budget = 44 << 20});
    right &= train("a budget", rw::DType::f32, 1);
  }
  return right ? 0 : 1;
}
