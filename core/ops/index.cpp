// Gathering rows; the gradient adds repeated rows in a fixed order.
#include <cstdlib>

#include "rewind/core/ops/detail.h"

namespace rw {

using namespace detail;

namespace {

std::vector<Tensor> embedding_forward(const std::any&, std::span<Tensor> inputs) {
  const Tensor table = contiguous(inputs[0]), index = contiguous(inputs[1]);
  const int64_t width = table.shape()[1];
  Shape shape = index.shape();
  shape.push_back(width);
  Tensor y = empty_on(table, shape, table.dtype());
  launch("gather", {in(table), in(index), out(y)},
         kernels::GatherParams{.n = count32(index.numel(), "embedding"),
                               .width = count32(width, "embedding"),
                               .rows = count32(table.shape()[0], "embedding")},
         {.threads = {flat_threads(y.numel()), 1, 1}});
  return one(std::move(y));
}

std::vector<Tensor> embedding_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor index = contiguous(r.input(1)), dy = contiguous(std::move(dys[0]));
  const uint32_t n = count32(index.numel(), "embedding");
  const Shape& table = r.inputs[0].shape;
  const Tensor next = empty_on(index, {n}, DType::i32), first = empty_on(index, {n}, DType::i32);
  launch("index_links", {in(index), out(next), out(first)}, kernels::IndexLinksParams{.n = n},
         {.threads = {n, 1, 1}, .flops = 1.0 * n * n});  // each looks at all others
  Tensor dtable = full(table, 0, DType::f32, index.device().shared_from_this());
  launch(
      "scatter_add", {in(dy), in(index), in(next), in(first), inout(dtable)},
      kernels::ScatterAddParams{
          .n = n, .width = count32(table[1], "embedding"), .rows = count32(table[0], "embedding")},
      {.threads = {flat_threads(dy.numel()), 1, 1}});
  return {std::move(dtable), Tensor()};
}

const Op embedding_op = {"embedding", embedding_forward, embedding_vjp,
                         [](const std::any&, uint32_t) {
                           return Saves{2, 0};
                         }};

}  // namespace

void detail::check_indices(const char* op, const char* what, const Tensor& index, int64_t most,
                           std::optional<int32_t> ignored) {
  const char* wanted = std::getenv("REWIND_CHECK_INDICES");
  if (!wanted || std::string_view(wanted) != "1") return;
  const std::vector<std::byte> bytes = read_bytes(index);
  for (int64_t i = 0; i < index.numel(); ++i) {
    int32_t value;
    std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof value, sizeof value);
    if ((value >= 0 && value <= most) || value == ignored) continue;
    Shape place = index.shape();
    int64_t rest = i;
    for (int axis = index.rank() - 1; axis >= 0; --axis) {
      place[axis] = rest % index.shape()[axis];
      rest /= index.shape()[axis];
    }
    fail<ValueError>(op, "{} must be 0 to {}{}, got {} at {} of {}", what, most,
                     ignored ? fmt::format(" or {}", *ignored) : "", value, place, index);
  }
}

Tensor embedding(Tensor table, Tensor index) {
  check<ShapeError>(table.rank() == 2 && index.rank() < Shape::max_rank, "embedding",
                    "needs table [V, D] and an index of rank at most {}, got {} and {}",
                    Shape::max_rank - 1, table, index);
  check<DTypeError>(index.dtype() == DType::i32, "embedding", "the index must be i32, got {}",
                    index);
  check_indices("embedding", "the index", index, table.shape()[0] - 1);
  return apply1(embedding_op, {}, TensorList(std::move(table), std::move(index)));
}

}  // namespace rw
