// A vision transformer on synthetic images of shapes (or CIFAR-10), with a checkpoint segment per
// block. Usage: vit [DEVICE] [FOLDER with CIFAR-10's binary files]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

constexpr int64_t batch_size = 32, steps = 40;

rw::Tensor images_of(const rw::Batch& batch) {
  return rw::tensor(batch.pixels, {batch.size(), 32, 32, 3});
}

float accuracy(rw::ViT& model, rw::Loader& loader) {
  const rw::NoGrad no_grad;
  model.eval();
  float right = 0, count = 0;
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const rw::Batch batch = loader.batch(0, i);
    const rw::Tensor labels = rw::tensor(batch.labels, {batch.size()});
    const rw::Tensor hits = rw::argmax(model(images_of(batch))) == labels;
    right += rw::sum(rw::cast(hits, rw::DType::f32)).item();
    count += static_cast<float>(batch.size());
  }
  model.train();
  return right / count;
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const auto folder = argc > 2 ? std::filesystem::path(argv[2])
                               : rw::synthetic_cifar10(rw::synthetic_data_directory(),
                                                       {.train = 1280, .test = 100});
  const rw::ImageDataset train = rw::load_cifar10(folder, rw::Split::train);
  const rw::ImageDataset test = rw::load_cifar10(folder, rw::Split::test);
  const rw::ChannelStatistics statistics = rw::channel_statistics(train);
  rw::Loader loader(
      train,
      {.batch_size = batch_size, .shuffle = true, .mean = statistics.mean, .std = statistics.std});
  rw::Loader tests(test, {.batch_size = 100, .mean = statistics.mean, .std = statistics.std});

  rw::ViT model({.image_size = 32,
                 .patch_size = 4,
                 .hidden = 64,
                 .layers = 2,
                 .heads = 4,
                 .mlp = 128,
                 .classes = 10});
  model.set_checkpoint(1);
  rw::AdamW optimizer(model.parameters(), {.lr = 3e-3f, .weight_decay = 0.05f});
  optimizer.set_schedule(rw::Schedule::cosine(steps, steps / 10));
  float first = 0, last = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const rw::Batch batch = loader.batch(i / loader.batches(), i % loader.batches());
    const rw::Tensor loss =
        rw::cross_entropy(model(images_of(batch)), rw::tensor(batch.labels, {batch.size()}));
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 13 == 0) std::printf("step %2ld  loss %.3f\n", long(i), last = loss.item());
    if (i == 0) first = last;
  }
  std::printf("%.1f %% of the test images are right\n", 100 * accuracy(model, tests));
  return last < first ? 0 : 1;
}
