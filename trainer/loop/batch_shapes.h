// The sizes of batches of sequences.
#pragma once

#include <functional>
#include <vector>

#include "../../planner/forecast/program.h"

namespace rw {

// Returns the size of the first batch, and those of the largest among the first `total` batches.
// shape_of(i) gives the size of batch i. Ranks share the batches, and only those of this rank
// count.
std::vector<BatchShape> largest_shapes(int64_t total,
                                       const std::function<BatchShape(int64_t)>& shape_of);
// The same for a loader's batches: `total` ones, or with 0 those of an epoch. A loader may have
// shape() besides batch(), which gives the sizes without the data.
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

// Asks `make` only once for each size of batches, since searches ask for the same ones again and
// again, from several threads.
BatchShapes remembered(BatchShapes make);

}  // namespace rw
