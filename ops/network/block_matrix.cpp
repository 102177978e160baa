// Products with matrices in blocks. Few rows are multiplied by the blocks themselves, and so are
// any number of them on devices that can. For more, a slab of rows after the other becomes floats,
// which are multiplied as others are.
#include "ops/network/block_matrix.h"

#include <algorithm>

#include "core/autograd/gradient_op.h"
#include "core/backend/features.h"
#include "core/blocks/nf4.h"
#include "ops/detail.h"
#include "ops/layout/index.h"
#include "ops/matmul.h"

namespace rw {

using namespace detail;

namespace {

// The floats of a slab have about so many bytes: enough rows to occupy a device, and little beside
// a model. Sizes alone decide about slabs, so that dry runs are exact.
constexpr int64_t slab_bytes = 8 << 20;
constexpr int64_t slab_rows = 64;  // a multiple of it, as tiles of products have

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

uint32_t type_number(const BlockType& type) {
  const auto all = block_types();
  return static_cast<uint32_t>(std::ranges::find(all, &type) - all.begin());
}

// The bytes of a block that lie in its row.
int64_t bytes_in_row(const BlockType& type) {
  return type.has_shared_scales ? type.code_bytes : type.bytes();
}

// The same matrix with rows that are dense; they may lie apart.
Tensor with_dense_rows(const Tensor& codes) {
  return codes.strides()[1] == 1 ? codes : contiguous(codes);
}

// The parameters for `rows` rows from `first` on.
kernels::BlockMatrixParams params_of(const BlockMatrix& w, const Tensor& codes, int64_t m,
                                     int64_t first, int64_t rows) {
  const auto u = [](int64_t n) { return count32(n, "blocks"); };
  const int64_t step = codes.size(0) == 1 ? codes.size(1) : codes.strides()[0];
  u(codes.size(0) * step);  // kernels count bytes
  return {.offset = {},
          .rows = u(rows),
          .cols = u(w.columns()),
          .row_bytes = u(step),
          .m = u(m),
          .first = u(first),
          .tail = u(w.rows() * step)};
}

// The codes with rows that are dense. What blocks share is read across rows, so these must not lie
// apart then.
Tensor dense_codes(const BlockMatrix& w) {
  return w.type().has_shared_scales ? contiguous(w.codes()) : with_dense_rows(w.codes());
}

// y [rows, columns] = the floats of the rows of w from `first` on; `codes` are dense_codes().
void decode_into(const BlockMatrix& w, const Tensor& codes, int64_t first, const Tensor& y) {
  const uint32_t threads = count32(y.numel(), "dequantize") / 8;
  launch("decode_blocks", {in(codes), out(y)}, params_of(w, codes, 0, first, y.size(0)),
         {.threads = {threads, 1, 1}, .variant = {type_number(w.type())}});
}

// body(first, end, values) for slabs of rows in their order; `values` [end - first, columns] lie in
// memory that the next slab overwrites.
template <class F>
void for_each_slab(const BlockMatrix& w, DType dtype, const F& body) {
  const int64_t rows = w.rows(), row_bytes = w.columns() * static_cast<int64_t>(size_of(dtype));
  const int64_t slabs = divide_up(rows * row_bytes, slab_bytes);
  const int64_t size = std::min(rows, divide_up(divide_up(rows, slabs), slab_rows) * slab_rows);
  const Tensor codes = dense_codes(w);
  const Tensor values = empty_on(codes, {size, w.columns()}, dtype);
  for (int64_t first = 0; first < rows; first += size) {
    const int64_t end = std::min(rows, first + size);
    const Tensor slab = slice(values, 0, 0, end - first);
    decode_into(w, codes, first, slab);
    body(first, end, slab);
  }
}

// Products have two inputs, x [m, in] and the codes.
BlockMatrix weight_of(const std::any& attrs, const Tensor& codes) {
  return {codes, *std::any_cast<const BlockType*>(attrs)};
}

std::vector<Tensor> linear_blocks_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const BlockMatrix w = weight_of(attrs, inputs[1]);
  const Tensor y = empty_on(inputs[0], {inputs[0].size(0), w.rows()}, inputs[0].dtype());
  multiply_blocks(inputs[0], w, y);
  return one(y);
}

std::vector<Tensor> matmul_blocks_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const BlockMatrix w = weight_of(attrs, inputs[1]);
  const Tensor y = empty_on(inputs[0], {inputs[0].size(0), w.columns()}, inputs[0].dtype());
  multiply_blocks_back(inputs[0], w, y);
  return one(y);
}

// Each is the other's gradient.
std::vector<Tensor> linear_blocks_vjp(Record& r, std::span<Tensor> dy) {
  return {matmul(std::move(dy[0]), weight_of(r.attrs, r.input(1))), Tensor()};
}
std::vector<Tensor> matmul_blocks_vjp(Record& r, std::span<Tensor> dy) {
  return {linear(std::move(dy[0]), weight_of(r.attrs, r.input(1))), Tensor()};
}

const Op linear_blocks_op = {.name = "linear_blocks",
                             .forward = linear_blocks_forward,
                             .vjp = linear_blocks_vjp,
                             .saves = saves_always<2>,
                             .is_heavy = true,
                             .records_vjp = true};
const Op matmul_blocks_op = {.name = "matmul_blocks",
                             .forward = matmul_blocks_forward,
                             .vjp = matmul_blocks_vjp,
                             .saves = saves_always<2>,
                             .is_heavy = true,
                             .records_vjp = true};

// op on x [..., in] as on [rows, in], with [..., out].
Tensor product_of(const Op& op, Tensor x, const BlockMatrix& w, int64_t from, int64_t to) {
  check_float(x, op.name);
  check<ShapeError>(x.rank() >= 1 && x.size(-1) == from, op.name,
                    "the last axis of x must have the size {} of blocks {} x {}, got {}", from,
                    w.rows(), w.columns(), x);
  Shape result = x.shape();
  result[x.rank() - 1] = to;
  x = reshape(std::move(x), Shape{result.numel() / to, from});
  const BlockType* const type = &w.type();
  return reshape(apply1(op, type, std::move(x), w.codes()), result);
}

std::vector<Tensor> embedding_blocks_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [type, dtype] = std::any_cast<const std::pair<const BlockType*, DType>&>(attrs);
  const Tensor table = contiguous(inputs[0]), index = contiguous(inputs[1]);
  const BlockMatrix w(table, *type);
  const Rows rows{index, index.numel(), table.size(1), table.size(0)};
  Shape shape = index.shape();
  shape.push_back(w.columns());
  const Tensor y = empty_on(table, {rows.n, w.columns()}, dtype);
  if (rows.n > 0) decode_into(w, take_rows(table, rows), 0, y);  // missing rows: every bit, so NaN
  return one(reshape(y, shape).detach());
}

std::vector<Tensor> dequantize_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto& [type, dtype] = std::any_cast<const std::pair<const BlockType*, DType>&>(attrs);
  const BlockMatrix w(inputs[0], *type);
  const Tensor y = empty_on(inputs[0], {w.rows(), w.columns()}, dtype);
  decode_into(w, dense_codes(w), 0, y);
  return one(y);
}

const Op embedding_blocks_op = {.name = "embedding_blocks", .forward = embedding_blocks_forward};
const Op dequantize_op = {.name = "dequantize", .forward = dequantize_forward};

}  // namespace

BlockMatrix::BlockMatrix(Tensor codes, const BlockType& type)
    : codes_(std::move(codes)), type_(&type) {
  check(type_number(type) < block_types().size() && !type.has_two_tensors, "BlockMatrix",
        "the type must be one of GGUF files, or NF4, got {}", type.name);
  check<DTypeError>(codes_.dtype() == DType::u8, "BlockMatrix", "codes must be u8, got {}", codes_);
  const int64_t bytes = bytes_in_row(type);
  check<ShapeError>(codes_.rank() == 2 && codes_.numel() > 0 && codes_.size(1) % bytes == 0,
                    "BlockMatrix", "codes must be rows of whole blocks of {} bytes for {}, got {}",
                    bytes, type.name, codes_);
  columns_ = codes_.size(1) / bytes * type.elements;
  rows_ = codes_.size(0);
  if (!type.has_shared_scales) return;
  rows_ = static_cast<int64_t>(
      blocks::nf4_rows(static_cast<uint64_t>(rows_), static_cast<uint64_t>(columns_)));
  check<ShapeError>(rows_ > 0, "BlockMatrix",
                    "codes of NF4 must have further rows, with what blocks share, got {}", codes_);
}

Shape BlockMatrix::stored_shape(int64_t rows, int64_t columns, const BlockType& type) {
  const auto r = static_cast<uint64_t>(rows), c = static_cast<uint64_t>(columns);
  const uint64_t stored = type.has_shared_scales ? blocks::nf4_stored_rows(r, c) : r;
  return {static_cast<int64_t>(stored), columns / type.elements * bytes_in_row(type)};
}

void detail::multiply_blocks(const Tensor& x, const BlockMatrix& w, const Tensor& y) {
  const int64_t m = x.size(0);
  if (m == 0) return;
  if (m <= BLOCK_ROWS || x.device().info().has(block_products)) {
    const Tensor codes = dense_codes(w), left = is_flat(x) ? x : copy_of(x, x.dtype());
    const double flops = 2.0 * double(m) * double(w.rows()) * double(w.columns());
    rw::launch("multiply_blocks", {in(left), in(codes), out(y)},
               params_of(w, codes, m, 0, w.rows()),
               {.threads = {count32(w.rows(), "linear"), 1, 1},
                .variant = {type_number(w.type())},
                .flops = flops});
    return;
  }
  for_each_slab(w, x.dtype(), [&](int64_t first, int64_t end, const Tensor& values) {
    gemm_into(x, transpose(values, 0, 1), slice(y, 1, first, end));
  });
}

void detail::multiply_blocks_back(const Tensor& x, const BlockMatrix& w, const Tensor& y) {
  if (x.size(0) == 0) return;
  // The sums of several slabs add up in f32.
  Tensor sums;
  for_each_slab(w, x.dtype(), [&](int64_t first, int64_t end, const Tensor& values) {
    const bool is_whole = end - first == w.rows();
    if (!sums) sums = is_whole || y.dtype() == DType::f32 ? y : empty_on(y, y.shape(), DType::f32);
    gemm_into(slice(x, 1, first, end), values, sums, first > 0);
  });
  if (sums.dtype() != y.dtype()) copy_into(sums, y);
}

Tensor linear(Tensor x, const BlockMatrix& weight, Tensor bias) {
  const AutocastInputs autocast("linear_blocks", {&x, &bias});
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.rows()}, "linear_blocks",
                    "bias must be [rows], got {} for {} rows", bias, weight.rows());
  Tensor y = product_of(linear_blocks_op, std::move(x), weight, weight.columns(), weight.rows());
  return bias.defined() ? add(std::move(y), cast(std::move(bias), y.dtype())) : y;
}

Tensor matmul(Tensor x, const BlockMatrix& weight) {
  const AutocastInputs autocast("matmul_blocks", {&x});
  return product_of(matmul_blocks_op, std::move(x), weight, weight.rows(), weight.columns());
}

Tensor embedding(const BlockMatrix& table, Tensor index, DType dtype) {
  check<ShapeError>(index.rank() < Shape::max_rank, "embedding_blocks",
                    "needs an index of rank at most {}, got {}", Shape::max_rank - 1, index);
  check<DTypeError>(index.dtype() == DType::i32 && is_float(dtype), "embedding_blocks",
                    "the index must be i32 and the rows float, got {} and {}", index, name(dtype));
  check(!table.type().has_shared_scales, "embedding_blocks",
        "rows of {} do not stand for themselves; use another type for tables", table.type().name);
  check_indices("embedding_blocks", "the index", index, table.rows() - 1);
  return apply1(embedding_blocks_op, std::pair(&table.type(), dtype), table.codes(),
                std::move(index));
}

Tensor dequantize(const BlockMatrix& x, DType dtype) {
  check<DTypeError>(is_float(dtype), "dequantize", "blocks become floats, got {}", name(dtype));
  return apply1(dequantize_op, std::pair(&x.type(), dtype), x.codes());
}

}  // namespace rw
