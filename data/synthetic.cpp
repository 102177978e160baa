#include "data/synthetic.h"

#include "core/error.h"
#include "data/cifar.h"
#include "data/idx.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Change it with the drawings: it tells old files apart.
constexpr int version = 2;

template <class Draw, class Save>
fs::path make_once(const fs::path& root, const char* name, const SyntheticSizes& sizes,
                   const char* train_file, const char* test_file, Draw draw, Save save) {
  check(sizes.train > 0 && sizes.test > 0, name,
        "needs at least one image of each split, got {} and {}", sizes.train, sizes.test);
  const fs::path folder =
      root / fmt::format("{}-v{}-{}-{}-{}", name, version, sizes.train, sizes.test, sizes.seed);
  // Streams 2 * seed and 2 * seed + 1: no image is in both splits.
  if (!fs::exists(folder / test_file))
    save(folder, Split::test, draw(sizes.test, 2 * sizes.seed + 1));
  if (!fs::exists(folder / train_file))
    save(folder, Split::train, draw(sizes.train, 2 * sizes.seed));
  return folder;
}

}  // namespace

fs::path synthetic_cifar10(const fs::path& root, const SyntheticSizes& sizes) {
  return make_once(root, "shapes", sizes, "data_batch_1.bin", "test_batch.bin", draw_shapes,
                   save_cifar10);
}

fs::path synthetic_mnist(const fs::path& root, const SyntheticSizes& sizes) {
  return make_once(root, "digits", sizes, "train-images-idx3-ubyte", "t10k-images-idx3-ubyte",
                   draw_digits, save_mnist);
}

}  // namespace rw
