#include "data/images/synthetic.h"

#include "core/base/error.h"
#include "data/images/cifar.h"
#include "data/images/idx.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Change it whenever the drawings change: it distinguishes old files.
constexpr int images_version = 2;

template <class Draw, class Load, class Save>
fs::path make_once(const fs::path& root, const char* name, const SyntheticSizes& sizes, Draw draw,
                   Load load, Save save) {
  check(sizes.train > 0 && sizes.test > 0, name,
        "needs at least one image of each split, got {} and {}", sizes.train, sizes.test);
  const fs::path folder = root / fmt::format("{}-v{}-{}-{}-{}", name, images_version, sizes.train,
                                             sizes.test, sizes.seed);
  // Files that are missing, cut short or not ours are drawn again.
  const auto whole = [&](Split split, int size) {
    try {
      return load(folder, split).size() == static_cast<size_t>(size);
    } catch (const FileError&) {
      return false;
    }
  };
  // The streams 2 * seed and 2 * seed + 1 keep every image out of the other split.
  if (!whole(Split::test, sizes.test))
    save(folder, Split::test, draw(sizes.test, 2 * sizes.seed + 1));
  if (!whole(Split::train, sizes.train))
    save(folder, Split::train, draw(sizes.train, 2 * sizes.seed));
  return folder;
}

}  // namespace

fs::path synthetic_cifar10(const fs::path& root, const SyntheticSizes& sizes) {
  return make_once(root, "shapes", sizes, draw_shapes, load_cifar10, save_cifar10);
}

fs::path synthetic_mnist(const fs::path& root, const SyntheticSizes& sizes) {
  return make_once(root, "digits", sizes, draw_digits, load_mnist, save_mnist);
}

}  // namespace rw
