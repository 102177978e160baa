#include "core/rng.h"

#include <utility>

namespace rw {

namespace {

thread_local Generator* own_generator = nullptr;  // of a GeneratorScope

}  // namespace

Generator& default_generator() {
  static Generator generator;
  return own_generator ? *own_generator : generator;
}

void manual_seed(uint64_t seed) { default_generator().seed(seed); }

GeneratorScope::GeneratorScope(const Generator& start)
    : generator_(start), previous_(std::exchange(own_generator, &generator_)) {}

GeneratorScope::~GeneratorScope() { own_generator = previous_; }

}  // namespace rw
