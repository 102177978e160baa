// The sizes of batches of sequences.
#pragma once

#include <functional>
#include <vector>

#include "../../planner/forecast/program.h"

namespace rw {

// The size of the first batch, and those of the largest among the first `total` ones; shape_of(i)
// is that of batch i. Ranks share them out: of those of this one.
std::vector<BatchShape> largest_shapes(int64_t total,
                                       const std::function<BatchShape(int64_t)>& shape_of);
// Those of a loader's batches, of `total` ones or, with 0, of an epoch. A loader that has shape()
// besides batch() gives them without their data.
template <class Loader>
std::vector<BatchShape> largest_shapes(Loader loader, int64_t total) {
  const int64_t batches = loader.batches();
  return largest_shapes(total ? total : batches, [&](int64_t i) {
    const auto of = [](const auto& batch) { return BatchShape{batch.rows, batch.length}; };
    if constexpr (requires { loader.shape(0, 0); })
      return of(loader.shape(i / batches, i % batches));
    else
      return of(loader.batch(i / batches, i % batches));
  });
}

// Asks `make` once for each size of batches: searches ask for the same ones again and again, from
// several threads.
RunOutline::Batches remembered(RunOutline::Batches make);

}  // namespace rw
