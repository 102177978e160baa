// Windows of a text: every token once per epoch, and the same batches from the same seed.
#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "core/base/error.h"
#include "data/text/token_windows.h"

using namespace rw;

namespace {

std::vector<int32_t> counted_tokens(int count) {
  std::vector<int32_t> text(static_cast<size_t>(count));
  std::iota(text.begin(), text.end(), 100);
  return text;
}

// The first tokens of all windows of an epoch, in their order.
std::vector<int32_t> window_starts(TokenWindows& windows, int64_t epoch) {
  std::vector<int32_t> found;
  for (int64_t i = 0; i < windows.batches(); ++i) {
    const TokenBatch batch = windows.batch(epoch, i);
    CHECK(batch.ids.size() == static_cast<size_t>(batch.rows * batch.length));
    for (size_t at = 0; at < batch.ids.size(); ++at) {
      CHECK(batch.targets[at] == batch.ids[at] + 1);
      if (at % static_cast<size_t>(batch.length)) CHECK(batch.ids[at] == batch.ids[at - 1] + 1);
    }
    for (int64_t row = 0; row < batch.rows; ++row)
      found.push_back(batch.ids[static_cast<size_t>(row * batch.length)]);
  }
  return found;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE("token windows: in order, they are the text") {
  const std::vector<int32_t> text = counted_tokens(29);
  TokenWindows windows(text, {.length = 4, .batch_size = 3, .shuffle = false});
  CHECK(windows.windows() == 7);
  CHECK(windows.batches() == 3);
  CHECK(windows.batch(0, 2).rows == 1);
  CHECK(window_starts(windows, 5) == std::vector<int32_t>{100, 104, 108, 112, 116, 120, 124});
}

TEST_CASE("token windows: shuffled, each epoch has windows and an order of its own") {
  const std::vector<int32_t> text = counted_tokens(400);  // 39 windows and 9 tokens
  TokenWindows windows(text, {.length = 10, .batch_size = 4, .seed = 3});
  std::set<int32_t> cuts;
  for (int64_t epoch = 0; epoch < 40; ++epoch) {
    std::vector<int32_t> found = window_starts(windows, epoch);
    CHECK(found.size() == 39);
    CHECK(!std::is_sorted(found.begin(), found.end()));
    std::sort(found.begin(), found.end());
    for (size_t i = 1; i < found.size(); ++i) CHECK(found[i] == found[i - 1] + 10);
    cuts.insert(found[0]);
  }
  CHECK(cuts.size() > 5);
  CHECK(*cuts.rbegin() <= 109);
  TokenWindows same(text, {.length = 10, .batch_size = 4, .seed = 3});
  TokenWindows other(text, {.length = 10, .batch_size = 4, .seed = 4});
  CHECK(window_starts(same, 2) == window_starts(windows, 2));
  CHECK(window_starts(other, 2) != window_starts(windows, 2));
}

TEST_CASE("token windows: a text of one window, and what is none") {
  const std::vector<int32_t> text = counted_tokens(5);
  TokenWindows windows(text, {.length = 4, .batch_size = 8});
  CHECK(window_starts(windows, 0) == std::vector<int32_t>{100});
  CHECK_THROWS_AS(TokenWindows(text, {.length = 5}), ValueError);
  CHECK_THROWS_AS(TokenWindows(text, {.length = 0}), ValueError);
  CHECK_THROWS_AS(TokenWindows(text, {.length = 2, .batch_size = 0}), ValueError);
  CHECK_THROWS_AS(windows.batch(0, 1), ValueError);
}

TEST_SUITE_END();
