#include "apps/bert/shapes.h"

#include <algorithm>

namespace rw {

std::vector<BatchShape> largest_shapes(TextLoader loader, int64_t steps) {
  constexpr size_t most = 8;
  const int64_t batches = loader.batches(), total = steps ? steps : batches;
  std::vector<BatchShape> shapes;
  for (int64_t i = 0; i < total; ++i) {
    const TextBatch batch = loader.batch(i / batches, i % batches);
    const BatchShape shape{batch.rows, batch.length};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  std::sort(shapes.begin() + 1, shapes.end(), [](const BatchShape& a, const BatchShape& b) {
    return std::pair(a.rows * a.length, a.length) > std::pair(b.rows * b.length, b.length);
  });
  shapes.resize(std::min(shapes.size(), most));
  return shapes;
}

}  // namespace rw
