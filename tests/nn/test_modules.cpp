// Modules that hold modules, activations, freezing, copies, groups by name, embeddings; and what
// the ops of indexing.h and numeric.h refuse.
#include <cmath>

#include "nn/layers.h"
#include "nn/sequential.h"
#include "ops/layout/indexing.h"
#include "ops/numeric.h"
#include "optim/base/parameters.h"
#include "optim/sgd.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

using Floats = std::vector<float>;

std::vector<std::string> parameter_names(const Module& module) {
  std::vector<std::string> names;
  for (const NamedTensor& p : module.named_parameters()) names.push_back(p.name);
  return names;
}

bool is_near(const Tensor& t, const Floats& expected) {
  const Floats values = t.to_vector();
  bool near = values.size() == expected.size();
  for (size_t i = 0; near && i < values.size(); ++i)
    near = std::abs(values[i] - expected[i]) < 2e-5f * (1 + std::abs(expected[i]));
  return near;
}

// Lets go of a buffer and shares a parameter that was made elsewhere, as modules in Python do.
struct Shares : Module {
  explicit Shares(const Tensor& shared) {
    register_parameter("shared", shared);
    register_buffer("state", {2}, 1);
    register_buffer("more", {2}, 2);
  }
  void forget(std::string_view name) { unregister_buffer(name); }
};

struct Branches : Module {
  Branches() {
    register_module("blocks", blocks);
    register_module("heads", heads);
    blocks.emplace<Linear>(3, 3);
    blocks.emplace<LeakyReLU>(0.1f);
    blocks.emplace<Linear>(3, 3);
    heads.emplace<Linear>("classes", 3, 2);
    heads.emplace<Linear>("boxes", 3, 4);
  }
  Tensor forward(Tensor x) override {
    for (const auto& block : blocks) x = (*block)(std::move(x));
    return concat({heads["classes"](x), heads["boxes"](x)}, 1);
  }
  ModuleList blocks;
  ModuleDict heads;
};

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "modules: lists and dictionaries own and name their modules") {
  Branches model;
  CHECK(parameter_names(model) ==
        std::vector<std::string>{"blocks.0.weight", "blocks.0.bias", "blocks.2.weight",
                                 "blocks.2.bias", "heads.classes.weight", "heads.classes.bias",
                                 "heads.boxes.weight", "heads.boxes.bias"});
  CHECK(model(ones({5, 3})).shape() == Shape{5, 6});
  CHECK(model.blocks.size() == 3);
  CHECK(model.heads.contains("boxes"));
  CHECK(contains(message_of<ValueError>([&] { model.heads["masks"]; }), "'masks'"));
  CHECK(contains(message_of<ValueError>([&] { model.heads.emplace<ReLU>("boxes"); }), "twice"));
  CHECK_THROWS_AS(model.blocks[3], std::out_of_range);
}

TEST_CASE_FIXTURE(CpuDevice, "modules: any function in a Sequential") {
  Sequential model;
  model.emplace<Linear>(2, 2);
  model.append([](Tensor x) { return x * 2.0f; });
  model.append(square);
  model.emplace<GELU>();
  CHECK(parameter_names(model) == std::vector<std::string>{"0.weight", "0.bias"});
  const Tensor x = ones({1, 2});
  CHECK(model(x).to_vector() == gelu(square(model[0](x) * 2.0f)).to_vector());
}

TEST_CASE_FIXTURE(CpuDevice, "modules: activations are their ops") {
  const Floats at = {-4, -1, -0.5f, 0, 0.5f, 2};
  const auto values = [&](Module&& module) { return module(tensor(at, {6})).to_vector(); };
  // From PyTorch 2.14: torch.nn.X()(torch.tensor([-4, -1, -.5, 0, .5, 2])).
  CHECK(is_near(tensor(values(Mish()), {6}),
                {-0.0725917f, -0.3034015f, -0.2207438f, 0, 0.3752452f, 1.9439590f}));
  CHECK(is_near(tensor(values(Hardswish()), {6}),
                {0, -0.3333333f, -0.2083333f, 0, 0.2916667f, 1.6666667f}));
  CHECK(is_near(tensor(values(SELU()), {6}),
                {-1.7258986f, -1.1113307f, -0.6917582f, 0, 0.5253505f, 2.1014020f}));
  CHECK(is_near(tensor(values(LogSigmoid()), {6}),
                {-4.0181499f, -1.3132617f, -0.9740770f, -0.6931472f, -0.4740770f, -0.1269280f}));
  CHECK(is_near(tensor(values(Softsign()), {6}), {-0.8f, -0.5f, -1.0f / 3, 0, 1.0f / 3, 2.0f / 3}));
  CHECK(values(ReLU6()) == Floats{0, 0, 0, 0, 0.5f, 2});
  CHECK(values(PReLU()) == Floats{-1, -0.25f, -0.125f, 0, 0.5f, 2});
  CHECK(values(Identity()) == at);
}

TEST_CASE_FIXTURE(CpuDevice, "modules: apply, freezing, copies") {
  Branches model, other;
  size_t modules = 0;
  model.apply([&](Module& m) { modules += m.is_training(); });
  CHECK(modules == 8);
  CHECK(model.parameters()[0].to_vector() != other.parameters()[0].to_vector());
  other.copy_state(model);
  for (size_t i = 0; i < 8; ++i)
    CHECK(other.parameters()[i].to_vector() == model.parameters()[i].to_vector());
  const std::string message = message_of<ValueError>([&] { Linear(3, 3).copy_state(model); });
  CHECK(contains(message, "2 and 8"));
  CHECK(
      contains(message_of<ShapeError>([] { Linear(3, 3).copy_state(Linear(2, 3)); }), "'weight'"));

  model.blocks.requires_grad_(false);
  sum(model(ones({2, 3}))).backward();
  CHECK_FALSE(model.parameters()[0].grad().defined());
  CHECK(model.parameters()[4].grad().defined());
  const SGD optimizer(model.parameters(), {.lr = 0.1f});
}

TEST_CASE_FIXTURE(CpuDevice, "modules: a parameter made elsewhere is shared, a buffer goes") {
  Tensor weight = ones({2});
  weight.set_requires_grad();
  Shares a(weight);
  const Shares b(weight);
  CHECK(parameter_names(a) == std::vector<std::string>{"shared"});
  CHECK(a.parameters()[0].pointer() == b.parameters()[0].pointer());
  a.forget("state");
  REQUIRE(a.named_buffers().size() == 1);
  CHECK(a.named_buffers()[0].name == "more");
  CHECK_THROWS_AS(Shares(ones({2}, DType::i32)), DTypeError);
}

TEST_CASE_FIXTURE(CpuDevice, "modules: parameter groups by name") {
  Branches model;
  const auto groups =
      groups_by_name(model.parameters(), {{.pattern = "blocks.0.*", .is_frozen = true},
                                          {.pattern = "*.bias", .weight_decay = 0},
                                          {.pattern = "heads.*", .lr_scale = 10}});
  CHECK(groups.size() == 4);
  CHECK(groups[0].parameters.empty());
  CHECK(groups[1].parameters.size() == 3);
  CHECK(groups[1].weight_decay == 0.0f);
  CHECK(groups[2].parameters.size() == 2);
  CHECK(groups[2].lr_scale == 10);
  CHECK(groups[3].parameters.size() == 1);
  CHECK_FALSE(model.parameters()[0].requires_grad());
  CHECK(contains(message_of<ValueError>(
                     [&] { groups_by_name(model.parameters(), {{.pattern = "decoder.*"}}); }),
                 "'decoder.*'"));
}

TEST_CASE_FIXTURE(CpuDevice, "modules: an embedding's padding row stays 0 and gets no gradient") {
  Embedding table(4, 2, {.padding_index = 1});
  CHECK(select(table.weight.detach(), 0, 1).to_vector() == Floats{0, 0});
  const Tensor index = tensor(std::vector<int32_t>{1, 2, 1, 2}, {4});
  sum(table(index)).backward();
  CHECK(table.weight.grad().to_vector() == Floats{0, 0, 0, 0, 2, 2, 0, 0});
  CHECK(contains(message_of<ValueError>([] { Embedding(4, 2, {.padding_index = 4}); }), "0 to 3"));
}

TEST_CASE_FIXTURE(CpuDevice, "modules: an embedding scales down the rows that are looked up") {
  Embedding table(3, 2, {.max_norm = 1.0f});
  table.weight.copy_from(Floats{3, 4, 0.3f, 0.4f, 30, 40});
  const Tensor y = table(tensor(std::vector<int32_t>{0, 1, 0}, {3}));
  CHECK(is_near(y, {0.6f, 0.8f, 0.3f, 0.4f, 0.6f, 0.8f}));
  CHECK(is_near(table.weight, {0.6f, 0.8f, 0.3f, 0.4f, 30, 40}));
}

TEST_CASE_FIXTURE(CpuDevice, "indexing: what is wrong is named") {
  const Tensor x = ones({3, 4});
  const auto index = [](const Shape& shape) { return full(shape, 0, DType::i32); };
  const auto shape_fault = [](const std::function<void()>& body) {
    return message_of<ShapeError>(body);
  };
  CHECK(contains(shape_fault([&] { gather(x, 1, index({3})); }), "f32 (3, 4) and index i32 (3)"));
  CHECK(contains(shape_fault([&] { gather(x, 0, index({2, 5})); }), "except along axis 0"));
  CHECK(contains(shape_fault([&] {
                   scatter(x, 1, index({3, 2}), ones({3, 3}));
                 }),
                 "source's shape"));
  CHECK(contains(shape_fault([&] {
                   scatter_add(x, 1, index({2, 2}), ones({2, 2}));
                 }),
                 "except along axis 1"));
  CHECK(contains(shape_fault([&] {
                   index_add(x, 0, index({2}), ones({2, 5}));
                 }),
                 "K along axis 0"));
  CHECK(contains(shape_fault([&] { topk(x, 5); }), "k must be 0 to 4"));
  CHECK(contains(shape_fault([&] { sort(x, 2); }), "[sort]"));
  CHECK(contains(shape_fault([&] { unfold(x, 1, 5, 1); }), "size <= 4"));
  CHECK(contains(shape_fault([&] { x[{0, 1, 2}]; }), "at most 2 indices"));
  CHECK(contains(message_of<DTypeError>([&] { gather(x, 1, x); }), "must be i32"));
  CHECK(contains(message_of<DTypeError>([&] {
                   scatter(x, 1, index({3, 1}), index({3, 1}));
                 }),
                 "one dtype"));
  CHECK(contains(shape_fault([&] { einsum("ij,jk", {x, ones({3, 2})}); }), "4 and 3 in 'ij,jk'"));
  CHECK(contains(shape_fault([&] { einsum("ijk->i", {x}); }), "letter for each axis"));
  CHECK(contains(message_of<ValueError>([&] { einsum("ij->ijk", {x}); }), "operands' letters"));
  CHECK(
      contains(message_of<ValueError>([&] { einsum("ij,jk->ik", {x}); }), "term for each operand"));
  CHECK(contains(message_of<ValueError>([&] { einsum("i1->i", {x}); }), "got '1'"));
  CHECK(
      contains(message_of<ValueError>([] { tensor(std::vector<int64_t>{int64_t{1} << 40}, {1}); }),
               "fit i32"));
}

TEST_CASE_FIXTURE(CpuDevice, "indexing: known values") {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor index = tensor(std::vector<int32_t>{2, 0, 2, 1, 1, 1}, {2, 3});
  CHECK(gather(x, 1, index).to_vector() == Floats{3, 1, 3, 5, 5, 5});
  // Repeated: in order, the last one stays.
  CHECK(scatter(x, 1, index, x * 10.0f).to_vector() == Floats{20, 2, 30, 4, 60, 6});
  CHECK(scatter_add(x, 1, index, x * 10.0f).to_vector() == Floats{21, 2, 43, 4, 155, 6});
  const float nan = std::nanf("");
  const Tensor wild =
      tensor({3, nan, -1, 3, -std::numeric_limits<float>::infinity(), 0, -0.0f}, {7});
  CHECK(argsort(wild).to_ints() == std::vector<int32_t>{4, 2, 5, 6, 0, 3, 1});
  CHECK(argsort(wild, 0, true).to_ints() == std::vector<int32_t>{1, 0, 3, 5, 6, 2, 4});
  CHECK(diag(tensor({1, 2}, {2}), 1).to_vector() == Floats{0, 1, 0, 0, 0, 2, 0, 0, 0});
  CHECK(eye(2, 3).to_vector() == Floats{1, 0, 0, 0, 1, 0});
  CHECK(linspace(0, 1, 5).to_vector() == Floats{0, 0.25f, 0.5f, 0.75f, 1});
  CHECK(arange(5, -4, -3).to_ints() == std::vector<int32_t>{5, 2, -1});
  CHECK(roll(tensor({1, 2, 3, 4}, {4}), 1, 0).to_vector() == Floats{4, 1, 2, 3});
  CHECK(fmod(tensor({-7, 7, 5.5f}, {3}), tensor({3, -3, 2}, {3})).to_vector() ==
        Floats{-1, 1, 1.5f});
  CHECK(remainder(tensor({-7, 7}, {2}), tensor({3, -3}, {2})).to_vector() == Floats{2, -2});
  const float inf = std::numeric_limits<float>::infinity(),
              most = std::numeric_limits<float>::max();
  CHECK(nan_to_num(tensor({nan, inf, -inf, 2}, {4})).to_vector() == Floats{0, most, -most, 2});
  CHECK(nan_to_num(tensor({inf}, {1}, DType::f16)).to_vector() == Floats{65504});
  CHECK(pow(tensor({-2, 0, 2}, {3}), tensor({3, 0, -1}, {3})).to_vector() == Floats{-8, 1, 0.5f});
}

TEST_SUITE_END();

}  // namespace rw::test
