// Searches for recomputation: budgets reach every peak that a search has reached.
#include <algorithm>
#include <iterator>
#include <map>

#include "benchmarks/memory/workloads.h"
#include "benchmarks/memory/workloads_sequence.h"
#include "planner/follow/segment_report.h"
#include "planner/search/search.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/random_program.h"
#include "tests/fixtures/unet.h"

namespace rw::test {

namespace {

Search search_program(const std::function<void()>& program) {
  return Search([] { return open_backend("dry:reference"); }, program, {.candidates = 6});
}

std::function<void()> unet_program(int64_t width, int64_t height, int64_t image_width) {
  return [=] {
    SmallUNet net(width);
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

// Asks for everything that a search can return, in an order by the seed, and for budgets around
// each peak: budgets are kept and feasible, and a smaller one never gets more memory than a larger
// one was given.
void check_search(const std::function<void()>& program, uint32_t seed) {
  Search search = search_program(program);
  std::map<uint64_t, uint64_t> given;  // budget -> peak, over all answers
  const auto ask = [&](uint64_t bytes) {
    const Candidate choice = search.budget(bytes);
    CHECK(choice.peak() <= bytes);
    const auto [at, is_new] = given.emplace(bytes, choice.peak());
    at->second = choice.peak();
    if (at != given.begin()) CHECK(std::prev(at)->second <= choice.peak());
    if (std::next(at) != given.end()) CHECK(std::next(at)->second >= choice.peak());
  };
  const auto nothing = [](const SaveQuery&) { return false; };
  const auto second = [n = 0](const SaveQuery&) mutable { return n++ % 2 == 1; };
  std::vector<std::function<Candidate()>> ways = {
      [&] { return search.memory(); }, [&] { return search.speed(); },
      [&] { return search.collection(nothing); }, [&] { return search.collection(second); },
      [&] { return search.budget(search.candidates().back().peak()); }};
  std::shuffle(ways.begin(), ways.end(), std::mt19937(seed));
  uint64_t least = UINT64_MAX;
  for (const auto& way : ways) {
    const uint64_t peak = way().peak();
    least = std::min(least, peak);
    ask(peak);
    ask(peak + 1000);
    for (const Candidate& choice : std::vector(search.candidates())) ask(choice.peak());
  }
  const uint64_t known = search.candidates().back().peak();
  CHECK(known <= least);
  CHECK(search.memory().peak() >= known);
  const std::string message = message_of<OutOfMemory>([&] { search.budget(known - 1); });
  CHECK(contains(message, fmt::format("({} bytes)", known)));
}

std::map<std::string, memory::Workload> small_models() {
  return {{"BERT", memory::bert_workload({.preset = "tiny", .batch = 2, .length = 24})},
          {"ResNet", memory::cifar_workload(1, 3, true, DType::f32)},
          {"ResNet in f16", memory::cifar_workload(1, 3, false, DType::f16)},
          {"WaveNet", memory::wavenet_workload({.batch = 1, .length = 96, .channels = 8})},
          {"seq2seq", memory::seq2seq_workload({.steps = 5, .batch = 3, .width = 8})}};
}

// Returns the peak of the program on a device of its own, without recomputation.
uint64_t real_peak(const std::function<void()>& program) {
  const CpuDevice device;
  program();
  return device.device->memory_report().peak;
}

// Values that are read beside the loss, as for metrics or codes of a stop-gradient model.
std::function<void()> probing_program(uint32_t seed) {
  return [=] {
    std::mt19937 random(seed);
    Tensor w = leaf(4096);
    std::vector<Tensor> looked_at;
    Tensor x = tanh(w * 0.5f);
    for (int i = 0; i < 8; ++i) {
      x = random() % 2 ? tanh(x + w) : sigmoid(x) * x;
      if (random() % 2) looked_at.push_back(argmax(reshape(square(exp(x)), {64, 64}), 1));
      if (random() % 3 == 0) x = x + exp(x.detach());
    }
    mean(square(x)).backward();
    default_device()->end_step();
  };
}

// The plan that keeps everything is measured as it runs, and no policy is returned that needs more.
void check_plain(const std::function<void()>& program) {
  Search search = search_program(program);
  CHECK(search.plain().peak() == real_peak(program));
  CHECK(search.speed().peak() <= search.plain().peak());
  for (const auto& names : {std::vector<std::string>{"softmax"}, {"matmul", "add"}, {}}) {
    const Candidate choice = search.collection(save_ops(names));
    CHECK(choice.peak() <= search.plain().peak());
    if (choice.peak() == search.plain().peak()) CHECK(choice.cost == 0);
  }
}

}  // namespace

TEST_CASE("recompute search: the plain run is measured to the byte, and no policy needs more" *
          doctest::test_suite("host")) {
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(rounds(12, 60)); ++seed) {
    INFO("seed " << seed);
    check_plain(random_program(seed));
    check_plain(probing_program(seed));
  }
  check_plain(unet_program(4, 21, 27));
  for (const auto& [name, model] : small_models()) {
    INFO(name);
    check_plain([&model = model] { model.run(); });
  }
}

TEST_CASE("recompute search: marks of save_matmuls() that do not lower the peak are named" *
          doctest::test_suite("host")) {
  const memory::Workload net =
      memory::wavenet_workload({.batch = 1, .length = 96, .channels = 8, .classes = 8});
  std::vector<SegmentReport> reports;
  const auto peak = [&](const char* marks) {
    return dry_run(open_backend("dry:reference"),
                   [&] {
                     if (marks == std::string("matmuls"))
                       report_segments(*Tape::current(),
                                       [&](auto found) { reports = std::move(found); });
                     net.run({.checkpoint = marks});
                   })
        .memory.peak;
  };
  const uint64_t plain = peak("none"), marked = peak("matmuls");
  MESSAGE("plain " << plain << ", marked " << marked);
  REQUIRE(reports.size() == 6);
  int named = 0;
  for (const SegmentReport& report : reports) {
    MESSAGE(report.problem);
    const bool lowers = report.peak < report.peak_without;
    CHECK(contains(report.problem, "does not lower the peak") <= !lowers);
    CHECK(contains(report.problem, "raises the peak") == (report.peak > report.peak_without));
    named += !lowers;
  }
  CHECK(named > 0);
}

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
