// Indexing, sorting, and other ways of shaping axes.
#include "ops/layout/indexing.h"
#include "ops/operators.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

void add_gathers(Table& t) {
  for (const int axis : {0, 1, 2}) {
    const Shape shape = {4, 5, 6};
    Shape picked = shape;
    picked[axis] = 9;
    t.row(fmt::format("gather along {}", axis), {x(shape), index(picked, 4)},
          [=](const Tensors& in) { return gather(in[0], axis, in[1]); });
    t.row(fmt::format("scatter along {}", axis), {x(shape), index(picked, 4), x(picked)},
          [=](const Tensors& in) { return scatter(in[0], axis, in[1], in[2]); });
    t.row(fmt::format("scatter_add along {}", axis), {x(shape), index(picked, 4), x(picked)},
          [=](const Tensors& in) { return scatter_add(in[0], axis, in[1], in[2]); });
    t.row(fmt::format("index_select along {}", axis), {x(shape), index({7}, 4)},
          [=](const Tensors& in) { return index_select(in[0], axis, in[1]); });
    picked[axis] = 7;
    t.row(fmt::format("index_add along {}", axis), {x(shape), index({7}, 4), x(picked)},
          [=](const Tensors& in) { return index_add(in[0], axis, in[1], in[2]); });
    t.row(fmt::format("index_copy along {}", axis), {x(shape), index({7}, 4), x(picked)},
          [=](const Tensors& in) { return index_copy(in[0], axis, in[1], in[2]); });
  }
  t.row("gather of less along other axes", {x({4, 5}), index({3, 2}, 5)},
        [](const Tensors& in) { return gather(in[0], 1, in[1]); });
  t.row("gather outside", {x({3, 4}), index({3, 5}, 8)},
        [](const Tensors& in) { return masked_fill(gather(in[0], 1, in[1]), in[1] > 3, 1); });
  t.row("scatter outside", {x({3, 4}), index({3, 9}, 8), x({3, 9})},
        [](const Tensors& in) { return scatter(in[0], 1, in[1] - 2, in[2]); });
  t.row("scatter_value", {x({3, 4}), index({3, 2}, 4)},
        [](const Tensors& in) { return scatter(in[0], 1, in[1], 2.5f); });
  t.row("scatter_add of i32", {index({3, 4}, 9), index({3, 6}, 4), index({3, 6}, 9)},
        [](const Tensors& in) { return scatter_add(in[0], 1, in[1], in[2]); });
  t.row("scatter and gather of u8", {mask({3, 4}), index({3, 6}, 4), mask({3, 6})},
        [](const Tensors& in) {
          return Tensors{scatter(in[0], 1, in[1], in[2]), gather(in[0], 1, in[1])};
        });
  t.row("take_along_axis, broadcast", {x({4, 5, 3}), index({4, 2, 1}, 5)},
        [](const Tensors& in) { return take_along_axis(in[0], in[1], 1); });
  t.row("index_select of rows of 8", {x({6, 8}), index({5}, 6)},
        [](const Tensors& in) { return index_select(in[0], 0, in[1]); });
  t.row("gather of nothing", {x({3, 4}), index({3, 0}, 4)},
        [](const Tensors& in) { return gather(in[0], 1, in[1]); });
  // There are more indices than are compared with each other.
  t.row("index_add of many", {constant({37}), index({20000}, 40), constant({20000})},
        [](const Tensors& in) {
          return index_add(cast(in[0], DType::f32), 0, in[1], cast(in[2], DType::f32));
        });
  t.row("index_copy of many", {constant({37}), index({20000}, 40), constant({20000})},
        [](const Tensors& in) { return index_copy(in[0], 0, in[1], in[2]); });
}

void add_sorts(Table& t) {
  const auto both = [](const SortResult& r) { return Tensors{r.values, r.indices}; };
  for (const int axis : {0, 1, 2})
    t.row(fmt::format("sort along {}", axis), {x({4, 5, 7})},
          [=](const Tensors& in) { return both(sort(in[0], axis, axis == 1)); });
  t.row("sort of lines of 33", {x({2, 33}, -9, 9)},
        [=](const Tensors& in) { return both(sort(in[0], 1)); });
  t.row("sort of lines of 300", {x({2, 300}, -40, 40)},
        [=](const Tensors& in) { return both(sort(in[0], -1, true)); });
  t.row("argsort of many equal", {index({3, 5000}, 7)}, [](const Tensors& in) {
    return Tensors{argsort(in[0]), argsort(in[0], 1, true)};
  });
  t.row("argsort of negative i32, u8", {index({200}, 9), mask({50})}, [](const Tensors& in) {
    return Tensors{argsort(in[0] * 500000000 - 2000000000), argsort(in[1], 0, true)};
  });
  t.row("argsort of NaN, infinities and zeros", {constant({9}, -2, 3), constant({7}, -2, 2)},
        [](const Tensors& in) {
          const Tensor v = unsqueeze(trunc(in[0]), 1) / trunc(in[1]);
          return Tensors{argsort(v, 0), argsort(v, 1, true)};
        });
  t.row("topk", {x({3, 40})}, [=](const Tensors& in) { return both(topk(in[0], 5)); });
  t.row("topk of the smallest, along 0", {x({9, 4})},
        [=](const Tensors& in) { return both(topk(in[0], 9, 0, false)); });
  t.row("topk of none", {x({9, 4})}, [=](const Tensors& in) { return both(topk(in[0], 0)); });
  t.row("sort of nothing", {x({3, 0})}, [=](const Tensors& in) { return both(sort(in[0])); });
}

void add_shaping(Table& t) {
  for (const int64_t k : {-2, 0, 1, 9}) {
    t.row(fmt::format("tril {}", k), {x({2, 5, 6})},
          [=](const Tensors& in) { return tril(in[0], k); });
    t.row(fmt::format("triu {}", k), {x({2, 5, 6})},
          [=](const Tensors& in) { return triu(in[0], k); });
    t.row(fmt::format("diagonal {}", k), {x({4, 5, 3})}, [=](const Tensors& in) {
      return Tensors{rw::diagonal(in[0], k), rw::diagonal(in[0], k, 2, 1)};
    });
    t.row(fmt::format("diag {}", k), {x({4}), x({4, 3})}, [=](const Tensors& in) {
      return Tensors{diag(in[0], k), diag(in[1], k)};
    });
  }
  t.row("one_hot", {index({3, 4}, 7)}, [](const Tensors& in) {
    return Tensors{one_hot(in[0], 5), one_hot(in[0], 7, DType::i32)};
  });
  t.row("eye", {}, [](const Tensors&) { return Tensors{eye(3), eye(2, 4, DType::i32)}; });
  t.row("linspace", {}, [](const Tensors&) {
    return Tensors{linspace(-1, 2, 7), linspace(5, 6, 1)};
  });
  t.row("arange", {}, [](const Tensors&) { return arange(9); });
  t.row("arange_step", {}, [](const Tensors&) {
    return Tensors{arange(2, 11, 3), arange(5, -4, -2), arange(3, 3)};
  });
  t.row("repeat", {x({3, 4})}, [](const Tensors& in) { return repeat(in[0], {2, 3, 2}); });
  t.row("repeat to nothing", {x({3, 4})}, [](const Tensors& in) { return repeat(in[0], {1, 0}); });
  t.row("tile", {x({3, 2, 2})}, [](const Tensors& in) { return tile(in[0], {3, 1}); });
  t.row("repeat_interleave", {x({3, 4})}, [](const Tensors& in) {
    return Tensors{repeat_interleave(in[0], 3, 0), repeat_interleave(in[0], 2, 1)};
  });
  t.row("flip", {x({3, 4, 5})}, [](const Tensors& in) {
    return Tensors{flip(in[0]), flip(in[0], {1}), flip(in[0], {0, -1})};
  });
  t.row("roll", {x({3, 5})}, [](const Tensors& in) {
    return Tensors{roll(in[0], 2, 1), roll(in[0], -4, 0), roll(in[0], 5, 1)};
  });
  for (const auto& [size, step] : {std::pair{3, 1}, std::pair{2, 2}, std::pair{2, 3}})
    t.row(fmt::format("unfold {} at steps of {}", size, step), {x({2, 8, 3})},
          [size = size, step = step](const Tensors& in) { return unfold(in[0], 1, size, step); });
  t.row("chunk", {x({7, 2})}, [](const Tensors& in) { return chunk(in[0], 3, 0); });
  t.row("index by brackets", {x({3, 4, 5})}, [](const Tensors& in) {
    return Tensors{in[0][{1}], in[0][{0, Slice{1, 3}}],
                   in[0][{ellipsis, Slice{{}, {}, 2}, new_axis}], in[0][{Slice{-2}, ellipsis, -1}],
                   in[0][{Slice{2, 1}}]};
  });
}

void add_einsum(Table& t) {
  const auto row = [&](const char* equation, std::vector<Input> inputs) {
    t.row(fmt::format("einsum {}", equation), std::move(inputs),
          [=](const Tensors& in) { return einsum(equation, TensorList(in)); });
  };
  row("ij,jk->ik", {x({3, 4}), x({4, 5})});
  row("ij,jk", {x({3, 4}), x({4, 5})});
  row("bij,bkj->bik", {x({2, 3, 4}), x({2, 5, 4})});
  row("bhid,bhjd->bhij", {x({2, 3, 4, 5}), x({2, 3, 6, 5})});
  row("i,j->ij", {x({3}), x({4})});
  row("ij,ij->ij", {x({3, 4}), x({3, 4})});
  row("ij,ij->", {x({3, 4}), x({3, 4})});
  row("ii", {x({4, 4})});
  row("ii->i", {x({4, 4})});
  row("iji->j", {x({4, 3, 4})});
  row("ij->ji", {x({3, 4})});
  row("ba", {x({3, 4})});
  row("ij->j", {x({3, 4})});
  row("...ij,...jk->...ik", {x({2, 1, 3, 4}), x({5, 4, 2})});
  row("...a,...a", {x({2, 3, 4}), x({3, 4})});
  row("ab,bc,cd->ad", {x({2, 3}), x({3, 4}), x({4, 2})});
  row("ab,bc,b->ac", {x({2, 3}), x({3, 4}), x({3})});
  row("ijk,jl->il", {x({2, 3, 4}), x({3, 5})});
}

}  // namespace

void add_indexing(Table& t) {
  add_gathers(t);
  add_sorts(t);
  add_shaping(t);
  add_einsum(t);
}

}  // namespace rw::test
