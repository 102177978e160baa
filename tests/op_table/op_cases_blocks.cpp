// Products with matrices in blocks, of each type.
#include "ops/losses/losses.h"
#include "tests/fixtures/block_fixture.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

int64_t columns_for(const BlockType& type) {
  return type.elements == 256 ? 512 : type.elements == 64 ? 192 : 96;
}

void add_type(Table& t, const BlockType& type) {
  const int64_t columns = columns_for(type);
  // A few rows of x are multiplied by the blocks, and more by what becomes of them.
  for (const int64_t rows : {1, 3, 8, 11})
    t.row(fmt::format("linear_blocks of {}, {} rows", type.name, rows), {x({rows, columns})},
          [&type, columns](const Tensors& in) {
            return linear(in[0], some_matrix(type, 7, columns));
          })
        .f32_tolerance = 2e-5;
  t.row(
      fmt::format("matmul_blocks of {}", type.name), {x({3, 7})},
      [&type, columns](const Tensors& in) { return matmul(in[0], some_matrix(type, 7, columns)); });
  if (!type.has_shared_scales)
    t.row(fmt::format("embedding_blocks of {}", type.name), {index({2, 5}, 7)},
          [&type, columns](const Tensors& in) {
            const BlockMatrix table = some_matrix(type, 7, columns);
            return Tensors{embedding(table, in[0]), embedding(table, in[0], DType::f16)};
          });
  t.row(fmt::format("dequantize of {}", type.name), {}, [&type, columns](const Tensors&) {
    const BlockMatrix w = some_matrix(type, 5, columns);
    return Tensors{dequantize(w), dequantize(w, DType::f16), dequantize(w, DType::bf16)};
  });
}

}  // namespace

void add_blocks(Table& t) {
  for (const BlockType* type : file_block_types()) add_type(t, *type);
  t.row("linear_blocks with a bias, of three axes", {x({2, 3, 64}), learned({5}, -1, 1)},
        [](const Tensors& in) { return linear(in[0], some_matrix(blocks::q8_0, 5, 64), in[1]); });
  t.row("linear_blocks of a vector", {x({64})},
        [](const Tensors& in) { return linear(in[0], some_matrix(blocks::q4_1, 5, 64)); });
  t.row("linear_blocks of nothing", {x({0, 64})},
        [](const Tensors& in) { return linear(in[0], some_matrix(blocks::q4_0, 5, 64)); });
  // The codes are views at odd addresses, or lie in another order.
  for (const BlockType* type : file_block_types()) {
    OpCase& row = t.row(
        fmt::format("linear_blocks and matmul_blocks of {} in views", type->name),
        {x({2, columns_for(*type)}), x({9, columns_for(*type)})}, [type](const Tensors& in) {
          const BlockMatrix w = some_matrix(*type, 6, columns_for(*type), 3);
          const BlockMatrix turned(transpose(contiguous(transpose(w.codes(), 0, 1)), 0, 1), *type);
          return Tensors{matmul(linear(in[0], w), turned), linear(in[1], turned)};
        });
    row.f32_tolerance = 1e-4;
    row.roundings = 20;  // of two products
  }
  for (const int64_t rows : {3, 12})
    t.row(fmt::format("linear_blocks of a view of x, {} rows", rows), {x({64, rows})},
          [](const Tensors& in) {
            return linear(transpose(in[0], 0, 1), some_matrix(blocks::q5_1, 5, 64));
          });
  for (const BlockType* type : {&blocks::q8_0, &blocks::q6_k, &blocks::nf4})
    t.row(fmt::format("tied_cross_entropy_blocks of {}", type->name),
          {x({13, columns_for(*type)}, -0.2f, 0.2f), learned({9}, -1, 1), index({13}, 9)},
          [type](const Tensors& in) {
            return tied_cross_entropy(in[0], some_matrix(*type, 9, columns_for(*type)),
                                      cast(in[1], in[0].dtype()), in[2],
                                      {.label_smoothing = 0.1f, .ignore_index = 3, .chunk = 10});
          });
}

}  // namespace rw::test
