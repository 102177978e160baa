#include "apps/bert/shapes.h"

#include "trainer/loop/batch_shapes.h"

namespace rw {

std::vector<BatchShape> largest_shapes(TextLoader loader, int64_t steps) {
  const int64_t batches = loader.batches();
  return largest_shapes(steps ? steps : batches, [&](int64_t i) {
    const TextBatch batch = loader.batch(i / batches, i % batches);
    return BatchShape{batch.rows, batch.length};
  });
}

}  // namespace rw
