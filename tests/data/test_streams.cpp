// Items and batches that are made ahead of their use, and work that threads share.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "core/base/error.h"
#include "data/base/parallel.h"
#include "data/base/prefetch.h"
#include "data/images/loader.h"

using namespace rw;

TEST_SUITE_BEGIN("host");

TEST_CASE("Prefetcher: all items in order, then the end") {
  Prefetcher<std::string> items(
      [i = 0]() mutable { return i < 1000 ? std::optional(std::to_string(i++)) : std::nullopt; },
      3);
  for (int i = 0; i < 1000; ++i) REQUIRE(items.next() == std::to_string(i));
  CHECK(items.next() == std::nullopt);
  CHECK(items.next() == std::nullopt);
}

TEST_CASE("Prefetcher: no further ahead than its depth") {
  std::atomic<int> made = 0;
  Prefetcher<int> items([&] { return std::optional(made++); }, 2);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(items.next() == i);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    REQUIRE(made.load() <= i + 3);
  }
}

TEST_CASE("Prefetcher: an exception comes after the items before it, and stays") {
  Prefetcher<int> items([i = 0]() mutable -> std::optional<int> {
    if (i == 2) fail<FileError>("test", "no item {}", i);
    return i++;
  });
  CHECK(items.next() == 0);
  CHECK(items.next() == 1);
  CHECK_THROWS_AS(items.next(), FileError);
  CHECK_THROWS_AS(items.next(), FileError);
  CHECK_THROWS_AS(Prefetcher<int>([] { return std::optional(1); }, 0), ValueError);
}

TEST_CASE("Prefetcher: may be left at any time") {
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher<std::vector<int>> items([] { return std::optional(std::vector<int>(100)); }, 4);
    for (int i = 0; i < taken; ++i) items.next();
  }
}

TEST_CASE("BatchStream: images too") {
  ImageDataset data{2, 2, 1, 10, std::vector<uint8_t>(40), {}, {}};
  for (int i = 0; i < 10; ++i) data.labels.push_back(i);
  Loader loader(data, {.batch_size = 4, .shuffle = true, .seed = 2}), other = loader;
  BatchStream stream(loader);
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t i = 0; i < 3; ++i) CHECK(stream.next().labels == other.batch(epoch, i).labels);
}

TEST_CASE("parallel_for: everything once; the first of several errors") {
  using Work = std::function<void(size_t)>;
  for (const int threads : {0, 1, 3}) {
    std::vector<std::atomic<int>> calls(50);
    parallel_for(50, threads, Work([&](size_t i) { ++calls[i]; }));
    CHECK(std::ranges::all_of(calls, [](const auto& n) { return n == 1; }));
    for (int round = 0; round < 20; ++round)
      CHECK_THROWS_WITH(parallel_for(50, threads, Work([](size_t i) {
                                       if (i >= 7) throw FileError(std::to_string(i));
                                     })),
                        "7");
  }
  parallel_for(0, 2, Work([](size_t) { FAIL("there is nothing to do"); }));
}

TEST_SUITE_END();
