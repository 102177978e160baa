// Trains a residual network in f16, with a learning-rate schedule, and saves it in a file that
// PyTorch can read. The whole program with options and snapshots is `./rewind resnet`,
// apps/resnet.cpp. Usage: resnet [DEVICE] [FOLDER with CIFAR-10's binary files; without it the
// images are synthetic]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t batch_size = 32;
constexpr uint32_t steps = 40;

float train_step(rw::ResNet& model, rw::Optimizer& optimizer, const rw::Batch& batch, bool shows) {
  rw::Tensor images = rw::tensor(batch.pixels, {batch.size(), 32, 32, 3});
  const rw::Tensor labels = rw::tensor(batch.labels, {batch.size()});
  rw::Tensor loss;
  {
    const rw::Autocast half(rw::DType::f16);  // products and convolutions; sums and losses are f32
    loss = rw::cross_entropy(model(rw::cast(std::move(images), rw::DType::f16)), labels);
  }
  optimizer.backward(loss);  // times the loss scale, which the device keeps
  optimizer.step();          // skipped on the device where a gradient overflowed
  optimizer.zero_grad();
  return shows ? loss.item() : 0;  // item() waits for the device
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const auto folder = argc > 2 ? std::filesystem::path(argv[2])
                               : rw::synthetic_cifar10(rw::synthetic_data_directory(),
                                                       {.train = 1280, .test = 100});
  const rw::ImageDataset train = rw::load_cifar10(folder, rw::Split::train);
  const rw::ChannelStatistics statistics = rw::channel_statistics(train);

  rw::ResNet model(rw::resnet_cifar(8));
  model.set_checkpoint(1);  // drop activations, make them again in backward
  rw::SGD optimizer(model.parameters(), {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 1e-4f});
  optimizer.set_schedule(rw::Schedule::cosine(steps, steps / 10));
  optimizer.set_scaler(rw::LossScaler::dynamic());

  rw::Loader loader(train, {.batch_size = batch_size,
                            .shuffle = true,
                            .crop_padding = 4,
                            .flip = true,
                            .mean = statistics.mean,
                            .std = statistics.std});
  float first = 0, last = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const bool shows = i % 13 == 0;
    const rw::Batch batch = loader.batch(i / loader.batches(), i % loader.batches());
    const float loss = train_step(model, optimizer, batch, shows);
    if (shows) std::printf("step %2ld  loss %.3f\n", long(i), last = loss);
    if (i == 0) first = loss;
  }

  const auto file = std::filesystem::temp_directory_path() / "rewind-resnet8.safetensors";
  rw::save_model(file, model, {{"trained_on", folder.filename().string()}});
  rw::ResNet again(rw::resnet_cifar(8));
  rw::load_model(file, again);
  std::printf("%ld parameters kept in and read from %s\n", long(again.parameter_count()),
              file.c_str());
  std::filesystem::remove(file);
  return last < first ? 0 : 1;
}
