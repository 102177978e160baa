// One target for libFuzzer: FUZZ_TARGET names it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/target.h"

namespace {

const rw::fuzz::Target& target() {
  static const rw::fuzz::Target found = [] {
    for (rw::fuzz::Target& t : rw::fuzz::all_targets())
      if (std::strcmp(t.name, FUZZ_TARGET) == 0) return t;
    std::fprintf(stderr, "no such target: %s\n", FUZZ_TARGET);
    std::exit(1);
  }();
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string refused;
  accepts(target(), {data, size}, refused);
  return 0;
}
