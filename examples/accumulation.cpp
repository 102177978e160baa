// A batch of 256 samples in the memory of 32: Accumulate makes one update from 8 micro-batches, and
// gets the weights that the whole batch gets. Usage: accumulation [DEVICE]
#include <rewind/rewind.h>

#include <cmath>
#include <cstdio>

namespace {

constexpr int64_t samples = 256, features = 64;

// Trains with `parts` micro-batches per update; returns the weights and the most bytes alive.
std::pair<std::vector<float>, uint64_t> train(const rw::Tensor& x, const rw::Tensor& y,
                                              uint32_t parts) {
  rw::manual_seed(2);  // the same initial weights
  rw::Sequential model;
  model.emplace<rw::Linear>(features, 512);
  model.emplace<rw::ReLU>();
  model.emplace<rw::Linear>(512, 1);
  rw::Accumulate optimizer(rw::Adam(model.parameters(), {.lr = 1e-3f}), parts);

  rw::Device& device = *rw::default_device();
  device.reset_peak();
  const int64_t rows = samples / parts;
  for (int update = 0; update < 5; ++update)
    for (uint32_t part = 0; part < parts; ++part) {  // the loop is that of a plain optimizer
      const int64_t begin = part * rows;
      rw::Tensor input = rw::slice(x, 0, begin, begin + rows);
      const rw::Tensor target = rw::slice(y, 0, begin, begin + rows);
      const rw::Tensor loss = rw::mse_loss(model(std::move(input)), target);
      optimizer.backward(loss, static_cast<float>(rows));  // the loss is a mean of so many
      optimizer.step();                                    // updates at every `parts`-th call
      optimizer.zero_grad();
    }
  return {model.parameters()[0].to_vector(), device.memory_report().peak};
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const rw::Tensor x = rw::randn({samples, features});
  const rw::Tensor y = rw::sum(rw::sin(x), {1}, true);

  const auto [whole, whole_peak] = train(x, y, 1);
  const auto [parts, parts_peak] = train(x, y, 8);
  double difference = 0;
  for (size_t i = 0; i < whole.size(); ++i)
    difference = std::max(difference, std::abs(double(whole[i]) - double(parts[i])));
  std::printf("one batch of 256:         peak %s\n", rw::format_bytes(whole_peak).c_str());
  std::printf("8 micro-batches of 32:    peak %s\n", rw::format_bytes(parts_peak).c_str());
  std::printf("weights after 5 updates differ by at most %.1e\n", difference);
  return difference < 1e-4 && parts_peak < whole_peak ? 0 : 1;
}
