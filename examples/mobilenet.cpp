// A small MobileNetV2 on synthetic images of shapes (or CIFAR-10): depthwise convolutions, an
// average of the weights beside them, a file with torchvision's names. Usage: mobilenet [DEVICE]
// [FOLDER with CIFAR-10's binary files]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t batch_size = 16, steps = 25;

// Blocks for images of 32 x 32.
const rw::MobileNetConfig config = {.classes = 10,
                                    .stem_stride = 1,
                                    .dropout = 0,
                                    .stages = {{1, 16, 1, 1}, {4, 24, 2, 2}, {4, 32, 2, 2}},
                                    .stem = 16,
                                    .head = 128};

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const auto folder = argc > 2 ? std::filesystem::path(argv[2])
                               : rw::synthetic_cifar10(rw::synthetic_data_directory(),
                                                       {.train = 1280, .test = 100});
  const rw::ImageDataset train = rw::load_cifar10(folder, rw::Split::train);
  const rw::ChannelStatistics statistics = rw::channel_statistics(train);
  rw::Loader loader(
      train,
      {.batch_size = batch_size, .shuffle = true, .mean = statistics.mean, .std = statistics.std});

  rw::MobileNetV2 model(config);
  // Biases and the weights of normalisation do not decay.
  rw::SGD optimizer(rw::decay_groups(model.parameters(), 1e-4f), {.lr = 0.1f, .momentum = 0.9f});
  float first = 0, last = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const rw::Batch batch = loader.batch(i / loader.batches(), i % loader.batches());
    rw::Tensor images = rw::tensor(batch.pixels, {batch.size(), 32, 32, 3});
    const rw::Tensor loss =
        rw::cross_entropy(model(std::move(images)), rw::tensor(batch.labels, {batch.size()}));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 8 == 0) std::printf("step %2ld  loss %.3f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }

  const auto file = std::filesystem::temp_directory_path() / "rewind-mobilenet.safetensors";
  rw::save_model(file, model, {{"trained_on", folder.filename().string()}});
  rw::MobileNetV2 again(config);
  rw::load_model(file, again);
  std::printf("%ld parameters kept in and read from %s\n", long(again.parameter_count()),
              file.c_str());
  std::filesystem::remove(file);
  return last < first ? 0 : 1;
}
