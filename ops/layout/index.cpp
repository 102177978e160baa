// Gathering rows; the gradient adds repeated rows in a fixed order.
#include "ops/layout/index.h"

#include <cstdlib>

#include "core/autograd/gradient_op.h"
#include "ops/detail.h"
#include "ops/operators.h"
#include "ops/sort_lines.h"

namespace rw {

using namespace detail;

namespace {

// Adds rows of equal index in the order of a stable sort, in a tree of chunks: a sum that a chunk
// of places leaves unfinished becomes a place of the next level.
void add_rows(const Tensor& dy, const Rows& rows, const Tensor& y) {
  const auto u = [](int64_t n) { return count32(n, "scatter"); };
  auto [key, order] = sort_lines(reshape(rows.index, {1, rows.n}), false);
  Tensor x = dy;
  for (int64_t n = rows.n, chunks = 0; chunks != 1; n = 2 * chunks) {
    chunks = (n + SCATTER_CHUNK - 1) / SCATTER_CHUNK;
    const Tensor open = empty_on(y, {2 * chunks, rows.width}, y.dtype());
    const Tensor open_key = empty_on(y, {2 * chunks}, DType::i32);
    launch("scatter_add", {in(x), in(key), in(order), inout(y), out(open), out(open_key)},
           kernels::RowsParams{
               .n = u(n), .width = u(rows.width), .rows = u(rows.rows), .flip = 0x80000000u},
           {.threads = {u(chunks * ((rows.width + 7) / 8)), 1, 1}, .variant = {n != rows.n}});
    x = open;
    key = order = open_key;
  }
}

// Marks the rows that are the last ones of their index: i32 [n].
Tensor lasts_of(const Rows& rows) {
  const uint32_t n = count32(rows.n, "scatter");
  const auto [key, order] = sort_lines(reshape(rows.index, {1, rows.n}), false);
  Tensor last = empty_on(rows.index, {rows.n}, DType::i32);
  launch("sorted_lasts", {in(key), in(order), out(last)}, kernels::SortParams{.n = n},
         {.threads = {n, 1, 1}});
  return last;
}

Rows table_rows(const Tensor& index, const Shape& table) {
  return {index, index.numel(), table[1], table[0]};
}

std::vector<Tensor> embedding_forward(const std::any&, std::span<Tensor> inputs) {
  const Tensor table = contiguous(inputs[0]), index = contiguous(inputs[1]);
  Shape shape = index.shape();
  shape.push_back(table.size(1));
  return one(reshape(take_rows(table, table_rows(index, table.shape())), shape).detach());
}

std::vector<Tensor> embedding_vjp(Record& r, std::span<Tensor> dys) {
  const Tensor dy = contiguous(std::move(dys[0]));
  Tensor index = contiguous(r.input(1));
  if (const auto padding = r.attributes<std::optional<int32_t>>())
    index = masked_fill(index, index == *padding, -1);
  const Shape& table = r.inputs[0].shape;
  Tensor dtable = full(table, 0, DType::f32, index.device().shared_from_this());
  put_rows(dy, table_rows(index, table), dtable, PutMode::add);
  return {std::move(dtable), Tensor()};
}

// Rows of the gradient that reach no row of the table have no gradient.
void embedding_second(SecondOrder& s) {
  const Tensor& index = s.input(1);
  const auto classes = static_cast<float>(s.of().inputs[0].shape[0]);
  Tensor counts = logical_and(index >= 0, index < classes);
  if (const auto padding = s.attributes<std::optional<int32_t>>())
    counts = logical_and(std::move(counts), index != *padding);
  Tensor rows = embedding(s.g(), index);
  s.give_dy(where(unsqueeze(std::move(counts), -1), rows, scalar_on(rows, 0, rows.dtype())));
}

const Op embedding_op = {.name = "embedding",
                         .forward = embedding_forward,
                         .vjp = embedding_vjp,
                         .saves = saves_always<2>,
                         .second = embedding_second};

}  // namespace

Tensor detail::take_rows(const Tensor& table, const Rows& rows) {
  const auto u = [](int64_t n) { return count32(n, "gather"); };
  Tensor y = empty_on(table, {rows.n, rows.width}, table.dtype());
  rw::launch("gather", {in(table), in(rows.index), out(y)},
             kernels::RowsParams{.n = u(rows.n), .width = u(rows.width), .rows = u(rows.rows)},
             {.threads = {flat_threads(y.numel()), 1, 1}});
  return y;
}

void detail::put_rows(const Tensor& dy, const Rows& rows, const Tensor& y, PutMode mode) {
  if (dy.numel() == 0) return;
  if (mode == PutMode::add) return add_rows(dy, rows, y);
  const bool is_unique = mode == PutMode::unique;
  const Tensor last = is_unique ? rows.index : lasts_of(rows);  // not read where it is unique
  const auto u = [](int64_t n) { return count32(n, "scatter"); };
  rw::launch("scatter_put", {in(dy), in(rows.index), in(last), inout(y)},
             kernels::RowsParams{.n = u(rows.n), .width = u(rows.width), .rows = u(rows.rows)},
             {.threads = {flat_threads(dy.numel()), 1, 1}, .variant = {is_unique}});
}

Tensor detail::is_last_row(const Rows& rows) {
  return cast(lasts_of(rows), DType::u8);
}

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

Tensor embedding(Tensor table, Tensor index, std::optional<int32_t> padding) {
  check<ShapeError>(table.rank() == 2 && index.rank() < Shape::max_rank, "embedding",
                    "needs table [V, D] and an index of rank at most {}, got {} and {}",
                    Shape::max_rank - 1, table, index);
  check<DTypeError>(index.dtype() == DType::i32, "embedding", "the index must be i32, got {}",
                    index);
  check_indices("embedding", "the index", index, table.shape()[0] - 1);
  return apply1(embedding_op, padding, std::move(table), std::move(index));
}

}  // namespace rw
