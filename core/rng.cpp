#include "core/rng.h"

namespace rw {

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().seed(seed); }

}  // namespace rw
