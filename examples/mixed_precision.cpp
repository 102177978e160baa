// The same training in f32 and in f16 with f32 master weights and dynamic loss scaling.
// Usage: mixed_precision [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

struct Result {
  float loss = 0;
  uint64_t peak = 0, skipped = 0;
};

Result train(rw::DType dtype) {
  rw::manual_seed(1);
  rw::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model.emplace<rw::Linear>(128, 128);
    model.emplace<rw::ReLU>();
  }
  model.emplace<rw::Linear>(128, 1);
  rw::Adam optimizer(model.parameters(), {.lr = 1e-3f});  // parameters and moments are f32
  // Gradients of f16 values can be too small for f16: the loss is multiplied by a scale that grows
  // until gradients overflow, and then shrinks; an update with an overflow is skipped.
  if (dtype == rw::DType::f16) optimizer.set_scaler(rw::LossScaler::dynamic());

  rw::Device& device = *rw::default_device();
  device.reset_peak();
  Result result;
  for (int step = 0; step < 60; ++step) {
    const rw::Tensor x = rw::randn({2048, 128});
    const rw::Tensor y = rw::mean(rw::sin(x), {1}, true);
    rw::Tensor loss;
    {
      const rw::Autocast autocast(dtype);  // products in this dtype; sums inside them are f32
      loss = rw::mse_loss(rw::cast(model(x), rw::DType::f32), y);
    }
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step == 59) result.loss = loss.item();
  }
  result.peak = device.memory_report().peak;
  result.skipped = optimizer.skipped();
  std::printf("%s  loss %.5f  peak %s  %lu updates skipped; %s\n",
              std::string(rw::name(dtype)).c_str(), result.loss,
              rw::format_bytes(result.peak).c_str(), static_cast<unsigned long>(result.skipped),
              optimizer.diagnose().c_str());
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  const Result full = train(rw::DType::f32), half = train(rw::DType::f16);
  return half.peak < full.peak && half.loss < 2 * full.loss ? 0 : 1;
}
