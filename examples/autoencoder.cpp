// Drawn digits through 16 numbers and back: convolutions down, transposed convolutions up. Usage:
// autoencoder [DEVICE]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t batch_size = 32, steps = 60, code = 16;

class Autoencoder : public rw::Module {
 public:
  Autoencoder() {
    register_module("encoder", encoder_);
    register_module("decoder", decoder_);
    encoder_.emplace<rw::Conv2d>(1, 16, 3, rw::Conv2dOptions{.stride = 2, .padding = 1});
    encoder_.emplace<rw::GELU>();
    encoder_.emplace<rw::Conv2d>(16, 32, 3, rw::Conv2dOptions{.stride = 2, .padding = 1});
    encoder_.emplace<rw::GELU>();
    encoder_.emplace<rw::Flatten>();
    encoder_.emplace<rw::Linear>(7 * 7 * 32, code);
    decoder_.emplace<rw::Linear>(code, 7 * 7 * 32);
    decoder_.append([](rw::Tensor x) { return rw::reshape(std::move(x), {-1, 7, 7, 32}); });
    decoder_.emplace<rw::GELU>();
    decoder_.emplace<rw::ConvTranspose2d>(32, 16, 4,
                                          rw::ConvTranspose2dOptions{.stride = 2, .padding = 1});
    decoder_.emplace<rw::GELU>();
    decoder_.emplace<rw::ConvTranspose2d>(16, 1, 4,
                                          rw::ConvTranspose2dOptions{.stride = 2, .padding = 1});
  }
  rw::Tensor forward(rw::Tensor x) override { return decoder_(encoder_(std::move(x))); }

 private:
  rw::Sequential encoder_, decoder_;
};

// Draws an image [28, 28] with letters.
void show(const rw::Tensor& image) {
  const std::vector<float> pixels = image.to_vector();
  for (size_t row = 0; row < 28; row += 2) {
    for (size_t column = 0; column < 28; ++column) {
      const float ink = std::min(std::max(pixels[row * 28 + column], 0.0f), 0.99f);
      std::putchar(" .:+#"[static_cast<int>(ink * 5)]);
    }
    std::putchar('\n');
  }
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const rw::ImageDataset digits = rw::draw_digits(1280, 1);
  rw::Loader loader(digits, {.batch_size = batch_size, .shuffle = true});

  Autoencoder model;
  rw::Adam optimizer(model.parameters(), {.lr = 3e-3f});
  rw::Tensor images, output;
  float first = 0, last = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const rw::Batch batch = loader.batch(i / loader.batches(), i % loader.batches());
    images = rw::tensor(batch.pixels, {batch.size(), 28, 28, 1});
    output = model(images);
    const rw::Tensor loss = rw::mse_loss(output, images);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 20 == 0 || i + 1 == steps)
      std::printf("step %2ld  loss %.4f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }
  show(rw::reshape(images[0], {28, 28}));
  show(rw::reshape(output.detach()[0], {28, 28}));
  return last < 0.7f * first ? 0 : 1;
}
