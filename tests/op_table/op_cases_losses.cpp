// Losses. Inputs of a kink (l1, huber, margins) have differences that finite steps do not cross:
// the values of input_values() are apart.
#include "ops/losses/ctc.h"
#include "ops/losses/losses.h"
#include "ops/losses/rnnt.h"
#include "tests/op_table/op_table.h"

namespace rw::test {

namespace {

constexpr Reduction reductions[] = {Reduction::none, Reduction::mean, Reduction::sum};

// Elementwise losses: in words and a rest, one element, none, and of constants, which no gradient
// reaches.
void add_pairs(Table& t) {
  using Loss = Tensor (*)(Tensor, Tensor, Reduction);
  const std::pair<const char*, Loss> losses[] = {
      {"mse_loss", [](Tensor a, Tensor b, Reduction r) { return mse_loss(a, b, r); }},
      {"l1_loss", [](Tensor a, Tensor b, Reduction r) { return l1_loss(a, b, r); }},
      {"smooth_l1_loss",
       [](Tensor a, Tensor b, Reduction r) { return smooth_l1_loss(a, b, r, 0.7f); }},
      {"huber_loss", [](Tensor a, Tensor b, Reduction r) { return huber_loss(a, b, r, 0.7f); }},
      {"kl_div of logarithms", [](Tensor a, Tensor b, Reduction r) {
         return kl_div(a, b, {.log_target = true, .reduction = r});
       }}};
  for (const auto& [name, loss] : losses)
    for (const Reduction r : reductions) {
      const auto run = [loss = loss, r](const Tensors& in) { return loss(in[0], in[1], r); };
      const auto row = [&](const Shape& shape) {
        OpCase& c =
            t.row(fmt::format("{} {}, reduction {}", name, shape.str(), static_cast<int>(r)),
                  {x(shape), x(shape, -1.9f, 2.1f)}, run);
        c.elementwise = r == Reduction::none;
        c.most = 80;
      };
      row({3, 7});
      if (r == Reduction::none) row({0, 3});
      if (r == Reduction::mean) row({4, 24});
    }
  t.row("mse_loss of a scalar", {x({}), x({})},
        [](const Tensors& in) { return mse_loss(in[0], in[1]); });
  t.row("mse_loss broadcast, to a constant", {x({3, 1, 5}), constant({4, 5})},
        [](const Tensors& in) { return mse_loss(in[0], in[1], Reduction::mean); });
  t.row("mse_loss to what a gradient reaches alone", {constant({3, 5}), x({3, 5})},
        [](const Tensors& in) { return mse_loss(in[0], in[1], Reduction::sum); });
  t.row("l1_loss of many", {x({2, 5000}), constant({2, 5000})},
        [](const Tensors& in) { return l1_loss(in[0], in[1]); });
}

void add_probabilities(Table& t) {
  const auto one_by_one = [&](const char* name, float low, float high, float most, auto loss) {
    OpCase& c =
        t.row(fmt::format("{} one by one", name), {x({3, 7}, low, high), x({3, 7}, 0.12f, 0.73f)},
              [loss](const Tensors& in) { return loss(in[0], in[1]); });
    c.elementwise = true;
    c.most = most;
  };
  one_by_one("binary_cross_entropy", 0.1f, 0.75f, 1e4f,
             [](Tensor a, Tensor b) { return binary_cross_entropy(a, b, {}, Reduction::none); });
  one_by_one("binary_cross_entropy_with_logits", -4, 4, 1e4f, [](Tensor a, Tensor b) {
    return binary_cross_entropy_with_logits(a, b, {.reduction = Reduction::none});
  });
  one_by_one("kl_div", -4, 4, 1e4f,
             [](Tensor a, Tensor b) { return kl_div(a, b, {.reduction = Reduction::none}); });
  one_by_one("sigmoid_focal_loss", -4, 4, 20, [](Tensor a, Tensor b) {
    return sigmoid_focal_loss(a, b, {.reduction = Reduction::none});
  });
  for (const Shape& shape : {Shape{3, 7}, Shape{2, 16}}) {
    const auto name = [&](const char* what) { return fmt::format("{} {}", what, shape.str()); };
    // The driver scales inputs by 1.25; these are then still shares.
    const Input share = x(shape, 0.1f, 0.75f), other = x(shape, 0.12f, 0.73f);
    t.row(name("binary_cross_entropy"), {share, other},
          [](const Tensors& in) { return binary_cross_entropy(in[0], in[1]); });
    t.row(name("binary_cross_entropy one by one, weighted"),
          {share, other, statistic({shape.at(-1)}, 0.5f, 2)}, [](const Tensors& in) {
            return binary_cross_entropy(in[0], in[1], in[2], Reduction::none);
          });
    t.row(name("binary_cross_entropy_with_logits"), {x(shape, -4, 4), share},
          [](const Tensors& in) { return binary_cross_entropy_with_logits(in[0], in[1]); });
    t.row(name("binary_cross_entropy_with_logits, weights of the last axis"),
          {x(shape, -4, 4), share, statistic({shape.at(-1)}, 0.5f, 2),
           statistic({shape.at(-1)}, 0.5f, 3)},
          [](const Tensors& in) {
            return binary_cross_entropy_with_logits(
                in[0], in[1], {.weight = in[2], .pos_weight = in[3], .reduction = Reduction::sum});
          });
    t.row(name("binary_cross_entropy_with_logits, weights of the first axis"),
          {x(shape, -4, 4), share, statistic({shape[0], 1}, 0.5f, 3)}, [](const Tensors& in) {
            return binary_cross_entropy_with_logits(in[0], in[1], {.pos_weight = in[2]});
          });
    t.row(name("kl_div"), {x(shape), share},
          [](const Tensors& in) { return kl_div(in[0], in[1], {.batchmean = true}); });
    for (const float gamma : {0.0f, 0.5f, 2.0f})
      t.row(name(fmt::format("sigmoid_focal_loss, gamma {}", gamma).c_str()),
            {x(shape, -4, 4), share}, [gamma](const Tensors& in) {
              return sigmoid_focal_loss(
                  in[0], in[1],
                  {.alpha = gamma == 2 ? 0.25f : -1, .gamma = gamma, .reduction = Reduction::sum});
            });
  }
}

void add_distances(Table& t) {
  const auto sign = [](const Tensor& ones) { return cast(ones, DType::f32) * 2.0f - 1.0f; };
  for (const Reduction r : reductions) {
    const auto name = [&](const char* what) {
      return fmt::format("{}, reduction {}", what, static_cast<int>(r));
    };
    t.row(
        name("margin_ranking_loss"), {x({9}), x({9}, -1.9f, 2.1f), mask({9})},
        [=](const Tensors& in) { return margin_ranking_loss(in[0], in[1], sign(in[2]), 0.5f, r); });
    t.row(name("cosine_embedding_loss"), {x({5, 6}), x({5, 6}, -1.9f, 2.1f), mask({5})},
          [=](const Tensors& in) {
            return cosine_embedding_loss(in[0], in[1], sign(in[2]), -0.7f, r);
          });
    t.row(name("triplet_margin_loss"), {x({5, 6}), x({5, 6}, -1.9f, 2.1f), x({5, 6}, -2.1f, 1.9f)},
          [=](const Tensors& in) {
            return triplet_margin_loss(in[0], in[1], in[2], {.margin = 2, .reduction = r});
          });
  }
  for (const float p : {1.0f, 3.0f})
    t.row(fmt::format("triplet_margin_loss, norm {}, swapped", p),
          {x({2, 3, 5}), x({2, 3, 5}, -1.9f, 2.1f), x({2, 3, 5}, -2.1f, 1.9f)},
          [=](const Tensors& in) {
            return triplet_margin_loss(in[0], in[1], in[2], {.margin = 9, .p = p, .swap = true});
          });
  for (const float p : {1.0f, 2.0f})
    t.row(fmt::format("multi_margin_loss, power {}", p),
          {x({6, 5}), index({6}, 5), statistic({5}, 0.5f, 2)}, [=](const Tensors& in) {
            return multi_margin_loss(in[0], in[1], {.p = p, .margin = 0.83f, .weight = in[2]});
          });
}

void add_classes(Table& t) {
  for (const Reduction r : reductions) {
    const auto name = [&](const char* what) {
      return fmt::format("{}, reduction {}", what, static_cast<int>(r));
    };
    t.row(name("nll_loss"), {x({7, 5}, -3, 0), index({7}, 5)},
          [=](const Tensors& in) { return nll_loss(in[0], in[1], {}, 2, r); });
    t.row(name("nll_loss weighted, of images"),
          {x({2, 3, 2, 8}, -3, 0), index({2, 3, 2}, 8), statistic({8}, 0.5f, 2)},
          [=](const Tensors& in) { return nll_loss(in[0], in[1], in[2], 2, r); });
    for (const float smoothing : {0.0f, 0.1f}) {
      t.row(name(fmt::format("cross_entropy_weighted, smoothing {}", smoothing).c_str()),
            {x({7, 5}, -3, 3), index({7}, 5), statistic({5}, 0.5f, 2)}, [=](const Tensors& in) {
              return cross_entropy(in[0], in[1], in[2], {smoothing, 2, r});
            });
      t.row(name(fmt::format("cross_entropy of probabilities, smoothing {}", smoothing).c_str()),
            {x({4, 8}, -3, 3), constant({4, 8}, 0, 1)}, [=](const Tensors& in) {
              return cross_entropy(in[0], in[1], {.label_smoothing = smoothing, .reduction = r});
            });
    }
  }
  t.row("cross_entropy of probabilities, weighted, many classes",
        {x({3, 700}, -3, 3), constant({3, 700}, 0, 1), statistic({700}, 0.5f, 2)},
        [](const Tensors& in) { return cross_entropy(in[0], in[1], in[2]) / 100.0f; });
  t.row("cross_entropy_weighted, many classes",
        {x({3, 700}, -3, 3), index({3}, 700), statistic({700}, 0.5f, 2)},
        [](const Tensors& in) { return cross_entropy(in[0], in[1], in[2]); });
}

// Lengths stay as they are, since losses of impossible ones have no differences.
void add_ctc(Table& t) {
  const auto ints = [](const std::vector<int32_t>& values) {
    return tensor(values, {static_cast<int64_t>(values.size())});
  };
  for (const Reduction r : reductions)
    t.row(fmt::format("ctc_loss, reduction {}", static_cast<int>(r)),
          {x({7, 3, 5}), index({3, 3}, 5)}, [=](const Tensors& in) {
            return ctc_loss(log_softmax(in[0], 2), in[1], ints({7, 6, 7}), ints({3, 0, 2}),
                            {.reduction = r, .zero_infinity = true});
          });
  t.row("ctc_loss of a last blank, frames to spare", {x({9, 2, 4}), index({2, 2}, 3)},
        [=](const Tensors& in) {
          return ctc_loss(in[0], in[1], ints({9, 5}), ints({2, 1}), {.blank = 3});
        });
  for (const Reduction r : reductions)
    t.row(fmt::format("rnnt_loss, reduction {}", static_cast<int>(r)),
          {x({2, 4, 3, 5}), index({2, 2}, 5)}, [=](const Tensors& in) {
            return rnnt_loss(in[0], in[1], ints({4, 3}), ints({2, 0}), {.reduction = r});
          });
  t.row("rnnt_joint_loss in chunks",
        {x({2, 5, 3}), x({2, 3, 3}), x({4, 3}), x({4}), index({2, 2}, 4)}, [=](const Tensors& in) {
          return rnnt_joint_loss(in[0], in[1], in[2], in[3], in[4], ints({5, 4}), ints({2, 1}),
                                 {.blank = 3, .chunk = 2});
        });
  t.row("ctc_loss without labels", {x({2, 3, 3}), index({3, 0}, 1)}, [=](const Tensors& in) {
    return ctc_loss(in[0], in[1], ints({2, 1, 2}), ints({0, 0, 0}));
  });
}

}  // namespace

void add_losses(Table& t) {
  add_ctc(t);
  add_pairs(t);
  add_probabilities(t);
  add_distances(t);
  add_classes(t);
}

}  // namespace rw::test
