#include "core/base/rng.h"

#include <utility>

#include "core/base/thread_state.h"

namespace rw {

Generator& default_generator() {
  static Generator generator;
  return thread_state().generator ? *thread_state().generator : generator;
}

void manual_seed(uint64_t seed) {
  default_generator().seed(seed);
}

GeneratorScope::GeneratorScope(const Generator& start)
    : generator_(start), previous_(std::exchange(thread_state().generator, &generator_)) {}

GeneratorScope::~GeneratorScope() {
  thread_state().generator = previous_;
}

}  // namespace rw
