// Readers with one fault each, which the fuzzer must find to show that it can.
#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "tests/fuzz/target.h"

namespace rw::fuzz {

namespace {

bool starts_like_the_seed(Input input) {
  return input.size() >= 4 && std::memcmp(input.data(), "seed", 4) == 0;
}

void throws_another_type(Input input) {
  check<FileError>(starts_like_the_seed(input), "planted", "the input must begin like the seed");
  if (input.size() > 8) throw std::out_of_range("planted");
}

// Trusts the size in the input.
void allocates_what_is_promised(Input input) {
  check<FileError>(input.size() >= 8, "planted", "the input must have 8 bytes");
  uint32_t size = 0;
  std::memcpy(&size, input.data() + 4, sizeof size);
  const std::vector<uint8_t> promised(size);
  expect(promised.size() == size, "planted");
}

void ends_the_process(Input input) {
  if (input.size() > 12) std::abort();
}

void never_ends(Input input) {
  for (volatile bool on = input.size() > 12; on;) {
  }
}

void breaks_a_promise(Input input) {
  expect(input.size() <= 12, "planted");
}

std::vector<Bytes> seeds() {
  return {to_bytes(std::string_view("seed\1\0\0\0", 8))};
}

}  // namespace

std::vector<Target> planted_targets() {
  return {{"planted_type", throws_another_type, seeds},
          {"planted_memory", allocates_what_is_promised, seeds},
          {"planted_crash", ends_the_process, seeds},
          {"planted_hang", never_ends, seeds},
          {"planted_promise", breaks_a_promise, seeds}};
}

}  // namespace rw::fuzz
