#include "data/text/token_windows.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/base/random.h"

namespace rw {

namespace {

// The target of the last token is one more.
int64_t most_windows(std::span<const int32_t> text, const TokenWindowsOptions& options) {
  check(options.length > 0, "TokenWindows", "length must be positive, got {}", options.length);
  const auto tokens = static_cast<int64_t>(text.size());
  check(tokens > options.length, "TokenWindows",
        "a text for windows of {} tokens must have more of them, got {}", options.length, tokens);
  return (tokens - 1) / options.length;
}

}  // namespace

TokenWindows::TokenWindows(std::span<const int32_t> text, const TokenWindowsOptions& options)
    : text_(text),
      options_(options),
      windows_(most_windows(text, options)),
      order_({.samples = static_cast<size_t>(windows_),
              .batch_size = options.batch_size,
              .shuffle = options.shuffle,
              .seed = options.seed}) {}

TokenBatch TokenWindows::batch(int64_t epoch, int64_t index) {
  const auto chosen = order_.batch(epoch, index);
  const auto length = static_cast<size_t>(options_.length);
  // The tokens that the windows leave over: as many starts as there are.
  const size_t rest = text_.size() - 1 - static_cast<size_t>(windows_) * length;
  size_t start = 0;
  if (options_.shuffle)
    start = DataRandom(options_.seed, static_cast<uint64_t>(epoch), 1).below(rest + 1);
  TokenBatch batch{.rows = static_cast<int64_t>(chosen.size()), .length = options_.length};
  batch.ids.reserve(chosen.size() * length);
  batch.targets.reserve(chosen.size() * length);
  for (const uint32_t window : chosen) {
    const auto first = text_.begin() + static_cast<ptrdiff_t>(start + window * length);
    batch.ids.insert(batch.ids.end(), first, first + options_.length);
    batch.targets.insert(batch.targets.end(), first + 1, first + 1 + options_.length);
  }
  return batch;
}

}  // namespace rw
