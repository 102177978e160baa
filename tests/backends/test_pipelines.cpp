// Pipelines that are made ahead of their first use: threads that make those for which calls will
// ask, and the list of them.
#include <doctest/doctest.h>

#include <numeric>
#include <set>
#include <stdexcept>

#include "backends/open.h"
#include "backends/vulkan/pipelines/made_once.h"
#include "backends/vulkan/pipelines/pipeline_list.h"
#include "core/files/cache.h"
#include "ops/ops.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/file_fixture.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::vulkan {

namespace {

using Numbers = MadeOnce<int, int>;

std::vector<int> up_to(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Caps everything() {
  Caps caps;
  caps.features = ~0u;
  caps.uuid = "0123";
  return caps;
}

}  // namespace

TEST_CASE("threads: what is asked for and made ahead is made once" * doctest::test_suite("host")) {
  constexpr int count = 300;
  std::array<std::atomic<int>, count> times{};
  for (int round = 0; round < 20; ++round) {
    for (auto& t : times) t = 0;
    Numbers all([&](int key) {
      ++times[static_cast<size_t>(key)];
      return key * key;
    });
    all.make_ahead(up_to(count), 3);
    {
      std::vector<std::jthread> callers;
      for (int c = 0; c < 2; ++c)
        callers.emplace_back([&, c] {
          for (int key = c; key < count; key += 1 + c) CHECK(all.get(key) == key * key);
        });
    }
    all.stop();
    CHECK(all.made() == count);
    CHECK(std::all_of(times.begin(), times.end(), [](const auto& t) { return t == 1; }));
    int sum = 0;
    all.for_each([&](int value) { sum += value; });
    CHECK(sum == (count - 1) * count * (2 * count - 1) / 6);
  }
}

TEST_CASE("threads: who waits for what is being made helps with the rest" *
          doctest::test_suite("host")) {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> is_begun = false, helped = false;
  Numbers all([&](int key) {
    if (key == 0) {
      is_begun = true;
      is_begun.notify_all();
      helped.wait(false);  // it is not done before the caller has made the next one
    } else if (std::this_thread::get_id() == here) {
      helped = true;
      helped.notify_all();
    }
    return key;
  });
  all.make_ahead({0, 1}, 1);
  is_begun.wait(false);
  CHECK(all.get(0) == 0);
  CHECK(helped);
}

TEST_CASE("threads: what cannot be made is an error where it is asked for" *
          doctest::test_suite("host")) {
  std::atomic<int> tries = 0, done = 0;
  Numbers all([&](int key) {
    if (key == 1 && ++tries < 3) throw std::runtime_error("no");
    ++done;
    done.notify_all();
    return key;
  });
  all.make_ahead({0, 1, 2}, 1);
  for (int n; (n = done) < 2;) done.wait(n);  // the second one was tried and left
  CHECK(all.get(0) == 0);                     // get() waits for the value that is being made
  CHECK(all.get(2) == 2);
  CHECK(all.made() == 2);
  CHECK_THROWS_WITH(all.get(1), "no");
  CHECK(all.get(1) == 1);  // the third time
  CHECK(tries == 3);
}

TEST_CASE("threads: an end does not wait for the whole list" * doctest::test_suite("host")) {
  std::atomic<int> made = 0;
  {
    Numbers all([&](int key) {
      ++made;
      made.notify_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return key;
    });
    all.make_ahead(up_to(100000), 2);
    made.wait(0);
  }
  CHECK(made < 100000);
}

TEST_CASE("pipeline list: every module has a name of its own" * doctest::test_suite("host")) {
  std::vector<PipelineKey> all;
  for (const Shader& shader : all_shaders()) {
    const uint32_t n = static_cast<uint32_t>(all.size());
    all.push_back({&shader, n % (kMaxVariant + 1), {}, n % 2 == 0});
    for (size_t i = 0; i < all.back().count; ++i)
      all.back().values[i] = n * static_cast<uint32_t>(i);
  }
  REQUIRE(all.size() > 100);
  CHECK(parse_pipelines(write_pipelines(all), everything()) == all);

  Caps caps = everything();
  caps.features &= ~feature::arithmetic;
  const std::vector<PipelineKey> some = parse_pipelines(write_pipelines(all), caps);
  CHECK(!some.empty());
  CHECK(some.size() < all.size());
  CHECK(std::none_of(some.begin(), some.end(), [](const PipelineKey& key) {
    return key.shader->features & feature::arithmetic;
  }));
}

TEST_CASE("pipeline list: what is not understood is left out" * doctest::test_suite("host")) {
  const PipelineKey key{&all_shaders()[0], 2, {7, 9}, true};
  const std::string line = write_pipelines(std::span(&key, 1));
  CHECK(parse_pipelines("", everything()).empty());
  CHECK(parse_pipelines("\n\n1 2 3\nno_such_kernel,f32,0,00 0 0 1\n", everything()).empty());
  CHECK(parse_pipelines(line.substr(0, line.find(' ')) + " 2 1\n", everything()).empty());
  CHECK(parse_pipelines("else\n" + line, everything()) == std::vector{key});
  CHECK(parse_pipelines(line.substr(0, line.size() - 1) + " 1 2 3 4 5 6 7 8 9", everything())[0]
            .count == kMaxVariant);
}

TEST_CASE("vulkan: a program's pipelines are listed for its next run") {
  const TemporaryFolder folder;
  const test::Env cache("REWIND_CACHE", folder.path.c_str());
  const test::Without trusts("self-check");
  const test::Without ahead = test::with("background-pipelines");
  std::string list;
  const auto used = [&](auto&& compute) {
    const auto before = exchange_default_device(nullptr);
    set_default_device(open_backend("vulkan"));
    list = pipeline_list_file({.uuid = default_device()->info().uuid});
    compute();
    exchange_default_device(before);
    const std::vector<std::byte> text = read_cache(list);
    std::set<std::string> lines;
    std::istringstream in({reinterpret_cast<const char*>(text.data()), text.size()});
    for (std::string line; std::getline(in, line);) lines.insert(line);
    return lines;
  };
  const auto first = used([] { CHECK(sum(full({1000}, 2)).item() == 2000); });
  REQUIRE(!first.empty());
  CHECK(used([] {}) == first);  // a run that computes nothing loses nothing
  const auto both = used([] { CHECK(exp(zeros({8})).to_vector()[3] == 1); });
  CHECK(both.size() > first.size());
  CHECK(std::includes(both.begin(), both.end(), first.begin(), first.end()));
  // A damaged list counts as no list.
  write_cache_text(list, "fill,f32,0,00 0 0\n");
  CHECK(used([] { CHECK(sum(full({1000}, 2)).item() == 2000); }) == first);
}

}  // namespace rw::vulkan
