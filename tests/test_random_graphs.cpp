// Random graphs in random nests of segments: always the bits of the plain run, nothing left over.
#include <cmath>

#include "rewind/core/autograd/boundaries.h"
#include "tests/random_program.h"

namespace rw::test {

namespace {

// What a run of a program gives: the losses, then the gradients.
std::vector<std::vector<float>> run(uint32_t seed, bool segments, std::vector<Tensor>& leaves) {
  manual_seed(seed);
  std::vector<std::vector<float>> results;
  {
    auto [loss, other] = Program(seed, segments, leaves).run();
    results = {loss.to_vector(), other.to_vector()};
    const bool both = seed % 3 == 1 && other.requires_grad();
    if (!both) other = {};
    loss.backward({}, both || seed % 3 == 2);
    if (both) other.backward();
    if (seed % 3 == 2) loss.backward();
  }
  for (Tensor& t : leaves) {
    results.push_back(t.grad().defined() ? t.grad().to_vector() : std::vector<float>());
    t.set_grad({});
  }
  return results;
}

// One backward, one of each of two losses, or two of one, in turn.
void check_graphs(uint32_t count) {
  std::vector<Tensor> leaves = program_leaves();
  const uint64_t at_rest = default_device()->memory_report().live;
  const uint64_t replayed = Tape::current()->replayed_records();
  for (uint32_t seed = 0; seed < count; ++seed) {
    INFO("seed " << seed);
    const auto plain = run(seed, false, leaves);
    REQUIRE(std::isfinite(plain[0][0]));
    const auto with_segments = run(seed, true, leaves);
    REQUIRE(with_segments == plain);
    REQUIRE(default_device()->memory_report().live == at_rest);
    REQUIRE(Tape::current()->stats().records == 0);
    const HostBoundaries on_host;
    REQUIRE(run(seed, true, leaves) == plain);
    REQUIRE(default_device()->memory_report().live == at_rest);
    REQUIRE(default_device()->memory_report().host_live == 0);
  }
  CHECK(default_device()->memory_report().host_peak > 0);
  CHECK(Tape::current()->replayed_records() - replayed > 5 * count);
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "random graphs: segments give the same bits and leave nothing" *
                                 doctest::test_suite("host")) {
  check_graphs(300);
}

TEST_CASE("random graphs: on vulkan") {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  check_graphs(24);
}

}  // namespace rw::test
