// Searches for recomputation: whatever peak one has reached, its budgets reach too.
#include <algorithm>
#include <iterator>
#include <map>

#include "rewind/core/predict/search.h"
#include "tests/env.h"
#include "tests/random_program.h"
#include "tests/unet.h"

namespace rw::test {

namespace {

RecomputeSearch search_for(const std::function<void()>& program) {
  return RecomputeSearch([] { return open_backend("dry:cpu"); }, program, {.candidates = 6});
}

std::function<void()> unet_program(int64_t width, int64_t height, int64_t image_width) {
  return [=] {
    UNet net(width);
    const Tensor image = rand({1, height, image_width, 3});
    for (int step = 0; step < 2; ++step) {
      mean(square(net.forward(image))).backward();
      for (Tensor& w : net.weights()) w.set_grad({});
      default_device()->end_step();
    }
  };
}

std::function<void()> random_program(uint32_t seed) {
  return [=] {
    manual_seed(seed);
    std::vector<Tensor> leaves = program_leaves();
    Program(seed, false, leaves).run().first.backward();
  };
}

// All that a search hands out, in an order by the seed, and budgets around each peak: they are
// kept, they are feasible, and a smaller one never gets more memory than a larger one was given.
void check_search(const std::function<void()>& program, uint32_t seed) {
  RecomputeSearch search = search_for(program);
  std::map<uint64_t, uint64_t> given;  // budget -> peak, ever
  const auto ask = [&](uint64_t bytes) {
    const RecomputeChoice choice = search.budget(bytes);
    CHECK(choice.peak() <= bytes);
    const auto [at, is_new] = given.emplace(bytes, choice.peak());
    at->second = choice.peak();
    if (at != given.begin()) CHECK(std::prev(at)->second <= choice.peak());
    if (std::next(at) != given.end()) CHECK(std::next(at)->second >= choice.peak());
  };
  const auto nothing = [](const SaveQuery&) { return false; };
  const auto second = [n = 0](const SaveQuery&) mutable { return n++ % 2 == 1; };
  std::vector<std::function<RecomputeChoice()>> ways = {
      [&] { return search.memory(); }, [&] { return search.speed(); },
      [&] { return search.collection(nothing); }, [&] { return search.collection(second); },
      [&] { return search.budget(search.choices().back().peak()); }};
  std::shuffle(ways.begin(), ways.end(), std::mt19937(seed));
  uint64_t least = UINT64_MAX;
  for (const auto& way : ways) {
    const uint64_t peak = way().peak();
    least = std::min(least, peak);
    ask(peak);
    ask(peak + 1000);
    for (const RecomputeChoice& choice : std::vector(search.choices())) ask(choice.peak());
  }
  const uint64_t known = search.choices().back().peak();
  CHECK(known <= least);
  CHECK(search.memory().peak() >= known);
  const std::string message = message_of<OutOfMemory>([&] { search.budget(known - 1); });
  CHECK(contains(message, fmt::format("({} bytes)", known)));
}

}  // namespace

TEST_CASE("recompute search: whatever peak it has handed out is a budget, on a U-Net" *
          doctest::test_suite("host")) {
  check_search(unet_program(8, 37, 45), 1);
  check_search(unet_program(16, 29, 51), 2);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "recompute search: the same on random programs" * doctest::test_suite("host")) {
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(rounds(3, 24)); ++seed) {
    INFO("seed " << seed);
    check_search(random_program(seed), seed);
  }
}

}  // namespace rw::test
