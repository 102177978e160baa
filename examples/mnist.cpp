// Trains a small convolutional network on MNIST, and evaluates it on images that it has not seen.
// Usage: mnist [DEVICE] [FOLDER with MNIST's files; without it synthetic digits]
#include <rewind/rewind.h>

#include <cstdio>

namespace {

// A batch on the device, counted as data in memory reports.
rw::Tensor images_of(const rw::Batch& batch) {
  const rw::PurposeScope scope(rw::Purpose::data);
  return rw::tensor(batch.pixels, {batch.size(), 28, 28, 1});  // NHWC: channels last
}

double accuracy(rw::Module& model, rw::Loader loader) {
  const rw::NoGrad no_grad;
  model.eval();
  double right = 0;
  for (int64_t i = 0; i < loader.batches(); ++i) {
    const rw::Batch batch = loader.batch(0, i);
    const rw::Tensor best = rw::argmax(model(images_of(batch)));
    const rw::Tensor labels = rw::tensor(batch.labels, {batch.size()});
    right += rw::sum(rw::cast(best == labels, rw::DType::f32)).item();
  }
  model.train();
  return right / static_cast<double>(loader.data().size());
}

}  // namespace

int main(int argc, char** argv) {
  rw::set_default_device(rw::open_backend(argc > 1 ? argv[1] : "auto"));
  rw::manual_seed(1);
  const auto folder =
      argc > 2 ? std::filesystem::path(argv[2])
               : rw::synthetic_mnist(rw::synthetic_data_directory(), {.train = 3200, .test = 500});
  const rw::ImageDataset train = rw::load_mnist(folder, rw::Split::train);
  const rw::ImageDataset test = rw::load_mnist(folder, rw::Split::test);

  rw::Sequential model;
  model.emplace<rw::Conv2d>(1, 8, 3, rw::Conv2dOptions{.stride = 2, .padding = 1});
  model.emplace<rw::ReLU>();
  model.emplace<rw::Conv2d>(8, 16, 3, rw::Conv2dOptions{.stride = 2, .padding = 1});
  model.emplace<rw::ReLU>();
  model.emplace<rw::Flatten>();
  model.emplace<rw::Linear>(16 * 7 * 7, 10);
  rw::Adam optimizer(model.parameters(), {.lr = 3e-3f});

  rw::Loader loader(train, {.batch_size = 64, .shuffle = true, .drop_last = true, .seed = 1});
  for (int64_t i = 0; i < 100; ++i) {
    const rw::Batch batch = loader.batch(i / loader.batches(), i % loader.batches());
    const rw::Tensor labels = rw::tensor(batch.labels, {batch.size()});
    const rw::Tensor loss = rw::cross_entropy(model(images_of(batch)), labels);
    optimizer.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    if (i % 25 == 0) std::printf("step %3ld  loss %.3f\n", long(i), loss.item());  // waits
  }
  const double share = accuracy(model, rw::Loader(test, {.batch_size = 100}));
  std::printf("test accuracy %.1f %%\n%s", 100 * share,
              rw::default_device()->memory_report().str().c_str());
  return share > 0.7 ? 0 : 1;
}
