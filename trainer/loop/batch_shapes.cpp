#include "trainer/loop/batch_shapes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "dist/world/world.h"

namespace rw {

std::vector<BatchShape> largest_shapes(int64_t total,
                                       const std::function<BatchShape(int64_t)>& shape_of) {
  constexpr size_t most = 8;
  std::vector<BatchShape> shapes;
  // A rank that gets no batch counts as one that gets the first.
  const int64_t first = world().rank() < total ? world().rank() : 0;
  for (int64_t i = first; i < total; i += world().size()) {
    const BatchShape shape = shape_of(i);
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  std::sort(shapes.begin() + 1, shapes.end(), [](const BatchShape& a, const BatchShape& b) {
    return std::pair(a.rows * a.length, a.length) > std::pair(b.rows * b.length, b.length);
  });
  shapes.resize(std::min(shapes.size(), most));
  return shapes;
}

BatchShapes remembered(BatchShapes make) {
  struct Known {
    std::mutex mutex;
    std::map<int64_t, std::vector<BatchShape>> shapes;
  };
  return [make = std::move(make), known = std::make_shared<Known>()](int64_t size) {
    const std::lock_guard lock(known->mutex);
    const auto [found, is_new] = known->shapes.try_emplace(size);
    if (is_new) found->second = make(size);
    return found->second;
  };
}

}  // namespace rw
