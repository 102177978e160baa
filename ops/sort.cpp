// Sorting along an axis.
#include "ops/detail.h"
#include "ops/layout/indexing.h"
#include "ops/sort_lines.h"

namespace rw {

using namespace detail;

namespace {

struct SortAttrs {
  int axis;
  bool descending;
};

std::vector<Tensor> argsort_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [axis, descending] = std::any_cast<const SortAttrs&>(attrs);
  const Tensor x = contiguous(transpose(inputs[0], axis, -1));
  const int64_t count = std::max<int64_t>(x.size(-1), 1);
  const Tensor order = sort_lines(reshape(x, {x.numel() / count, x.size(-1)}), descending).second;
  return one(contiguous(transpose(reshape(order, x.shape()), axis, -1)).detach());
}

const Op argsort_op = {"argsort", argsort_forward};

}  // namespace

Tensor argsort(Tensor x, int axis, bool descending) {
  axis = normalize_axis(axis, x.rank(), "sort");
  return apply1(argsort_op, SortAttrs{axis, descending}, std::move(x));
}

SortResult sort(Tensor x, int axis, bool descending) {
  axis = normalize_axis(axis, x.rank(), "sort");
  Tensor indices = argsort(x, axis, descending);
  return {gather_unique(std::move(x), axis, indices), indices};
}

SortResult topk(Tensor x, int64_t k, int axis, bool largest) {
  axis = normalize_axis(axis, x.rank(), "topk");
  check<ShapeError>(k >= 0 && k <= x.size(axis), "topk",
                    "k must be 0 to {}, the size of axis {}, got {} for {}", x.size(axis), axis, k,
                    x);
  Tensor indices = contiguous(slice(argsort(x, axis, largest), axis, 0, k));
  return {gather_unique(std::move(x), axis, indices), indices};
}

}  // namespace rw
