// Tells discs from squares pixel by pixel: a small U-Net on synthetic images. Usage: unet
// [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int64_t size = 32, batch_size = 8, steps = 30;
constexpr int classes = 3;  // ground, disc, square

struct Drawing {
  rw::Tensor images, targets;  // f32 [N, size, size, 3]; i32 [N * size * size]
};

// One disc and one square in each image, on noise.
Drawing draw(rw::DataRandom& random) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (int64_t n = 0; n < batch_size; ++n) {
    int64_t x[2], y[2], radius[2];
    for (int shape = 0; shape < 2; ++shape) {
      x[shape] = 6 + static_cast<int64_t>(random.below(size - 12));
      y[shape] = 6 + static_cast<int64_t>(random.below(size - 12));
      radius[shape] = 4 + static_cast<int64_t>(random.below(4));
    }
    for (int64_t h = 0; h < size; ++h)
      for (int64_t w = 0; w < size; ++w) {
        const int64_t dx = w - x[0], dy = h - y[0];
        int32_t label = dx * dx + dy * dy < radius[0] * radius[0] ? 1 : 0;
        if (std::max(std::abs(w - x[1]), std::abs(h - y[1])) < radius[1]) label = 2;
        labels.push_back(label);
        for (int c = 0; c < 3; ++c)
          pixels.push_back((label ? 0.8f : 0.2f) + random.uniform(0, 0.3f));
      }
  }
  return {rw::tensor(pixels, {batch_size, size, size, 3}),
          rw::tensor(labels, {batch_size * size * size})};
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  rw::DataRandom random(1);
  rw::UNet model({.classes = classes, .width = 8, .levels = 2});
  rw::Adam optimizer(model.parameters(), {.lr = 1e-2f});

  for (int64_t step = 0; step < steps; ++step) {
    Drawing batch = draw(random);
    const rw::Tensor scores = model(std::move(batch.images));
    const rw::Tensor loss = rw::cross_entropy(rw::reshape(scores, {-1, classes}), batch.targets);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (step % 10 == 0) std::printf("step %2ld  loss %.3f\n", long(step), loss.item());
  }

  const rw::NoGrad no_grad;
  Drawing test = draw(random);
  const rw::Tensor best = rw::flatten(rw::argmax(model(std::move(test.images)), -1));
  const float right = rw::mean(rw::cast(best == test.targets, rw::DType::f32)).item();
  const float ground = rw::mean(rw::cast(test.targets == 0, rw::DType::f32)).item();
  std::printf("%.1f %% of the pixels are right; %.1f %% are ground\n", 100 * right, 100 * ground);
  return right > ground + 0.05f ? 0 : 1;
}
