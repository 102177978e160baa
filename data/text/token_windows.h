// A long text of tokens as windows of equal length, for language models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../base/batch_order.h"

namespace rw {

// How a text becomes batches.
struct TokenWindowsOptions {
  int64_t length = 128;    // tokens of a window
  int64_t batch_size = 8;  // windows per batch
  bool shuffle = true;     // other windows, in another order, in every epoch
  uint64_t seed = 0;       // of both
};

// Some windows, row-major [rows, length].
struct TokenBatch {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> ids;      // tokens
  std::vector<int32_t> targets;  // the token that follows each
};

// Makes batches of windows, any at any time: a pure function of (seed, epoch, index). The windows
// of an epoch follow each other without overlap; with `shuffle`, each epoch begins at a token of
// its own, so that it cuts the text elsewhere.
class TokenWindows {
 public:
  // The text must outlive this. ValueError for options that are not positive, and for texts that
  // are not longer than a window.
  TokenWindows(std::span<const int32_t> text, const TokenWindowsOptions& options);

  int64_t windows() const { return windows_; }          // per epoch
  int64_t batches() const { return order_.batches(); }  // the same
  uint64_t seed() const { return options_.seed; }       // TokenWindowsOptions::seed
  // Batch `index`, in [0, batches()), of an epoch from 0 on; the last one may have fewer windows.
  // ValueError otherwise.
  TokenBatch batch(int64_t epoch, int64_t index);

 private:
  std::span<const int32_t> text_;
  TokenWindowsOptions options_;
  int64_t windows_;
  BatchOrder order_;
};

}  // namespace rw
