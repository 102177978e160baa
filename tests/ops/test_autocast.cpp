// Autocast: the dtype of every listed op, compared with PyTorch's too; scopes; replays outside of
// them.
#include <map>

#include "core/autograd/checkpoint.h"
#include "ops/autocast.h"
#include "ops/layout/indexing.h"
#include "ops/losses/ctc.h"
#include "ops/losses/losses.h"
#include "ops/losses/rnnt.h"
#include "ops/network/conv.h"
#include "ops/numeric.h"
#include "tests/fixtures/block_fixture.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"
#include "tests/op_table/gradcheck.h"

using namespace rw;
using namespace rw::test;

namespace {

// Runs a listed op with activations of a dtype and parameters in f32.
using RunOp = std::function<Tensor(DType)>;

Tensor of(const Shape& shape, DType dtype = DType::f32) {
  return full(shape, 0.5f, dtype);
}

Tensor index_zeros(const Shape& shape) {
  return zeros(shape, DType::i32);
}

const std::map<std::string, RunOp>& runs() {
  static std::map<std::string, RunOp> all = [] {
    std::map<std::string, RunOp> r;
    const auto x = [](DType d) { return of({4, 4}, d); };
#define UNARY(id, op, forward, grad, saves, lo, hi) r[#op] = [x](DType d) { return op(x(d)); };
#define UNARY_AB(id, op, forward, grad, saves, lo, hi)
#define BINARY(id, op, forward, lo, hi, lo_y, hi_y) \
  r[#op] = [x](DType d) { return op(x(d), x(d)); };
#include "shaders/elementwise.def"
    r["affine"] = [x](DType d) { return affine(x(d), 2, 1); };
    r["clamp"] = [x](DType d) { return clamp(x(d), 0, 1); };
    r["pow"] = [x](DType d) { return pow(x(d), 1.5f); };
    r["leaky_relu"] = [x](DType d) { return leaky_relu(x(d)); };
    r["elu"] = [x](DType d) { return elu(x(d)); };

    r["matmul"] = [x](DType d) { return matmul(x(d), of({4, 4})); };
    r["linear"] = [x](DType d) { return linear(x(d), of({3, 4}), of({3})); };
    r["conv1d"] = [](DType d) { return conv1d(of({2, 8, 4}, d), of({4, 3, 4}), of({4})); };
    r["conv2d"] = [](DType d) { return conv2d(of({2, 8, 8, 4}, d), of({4, 3, 3, 4}), of({4})); };
    r["conv3d"] = [](DType d) {
      return conv3d(of({2, 8, 8, 8, 4}, d), of({4, 3, 3, 3, 4}), of({4}));
    };
    r["conv_transpose1d"] = [](DType d) {
      return conv_transpose1d(of({2, 8, 4}, d), of({4, 3, 4}), of({4}));
    };
    r["conv_transpose2d"] = [](DType d) {
      return conv_transpose2d(of({2, 8, 8, 4}, d), of({4, 3, 3, 4}), of({4}));
    };
    r["attention"] = [](DType d) {
      const Tensor q = of({2, 2, 4, 8}, d);
      return attention(q, of({2, 2, 4, 8}), q);
    };
    r["lstm"] = [](DType d) {
      return lstm(of({3, 2, 16}, d), of({16, 4}), of({16}), of({2, 4}), of({2, 4})).y;
    };
    r["gru"] = [](DType d) { return gru(of({3, 2, 12}, d), of({12, 4}), of({12}), of({2, 4})); };
    r["prelu"] = [x](DType d) { return prelu(x(d), of({1})); };
    r["tied_cross_entropy"] = [x](DType d) {
      return tied_cross_entropy(x(d), of({3, 4}), of({3}), index_zeros({4}));
    };
    const auto wide = [](DType d) { return of({4, 32}, d); };
    r["linear_blocks"] = [=](DType d) { return linear(wide(d), some_matrix(blocks::q8_0, 3, 32)); };
    r["matmul_blocks"] = [=](DType d) {
      return matmul(wide(d), some_matrix(blocks::q8_0, 32, 32));
    };
    r["rnnt_loss"] = [](DType d) {
      return rnnt_loss(of({1, 2, 2, 4}, d), full({1, 1}, 1, DType::i32), full({1}, 2, DType::i32),
                       full({1}, 1, DType::i32));
    };
    r["rnnt_joint_loss"] = [](DType d) {
      return rnnt_joint_loss(of({1, 2, 4}, d), of({1, 2, 4}), of({4, 4}), of({4}),
                             full({1, 1}, 1, DType::i32), full({1}, 2, DType::i32),
                             full({1}, 1, DType::i32));
    };
    r["ctc_loss"] = [](DType d) {
      return ctc_loss(of({6, 2, 4}, d), full({2, 2}, 1, DType::i32), full({2}, 6, DType::i32),
                      full({2}, 2, DType::i32));
    };

    r["softmax"] = [x](DType d) { return softmax(x(d)); };
    r["log_softmax"] = [x](DType d) { return log_softmax(x(d)); };
    r["logsumexp"] = [x](DType d) { return logsumexp(x(d)); };
    r["sum"] = [x](DType d) { return sum(x(d)); };
    r["prod"] = [x](DType d) { return prod(x(d)); };
    r["mean"] = [x](DType d) { return mean(x(d)); };
    r["var"] = [x](DType d) { return var(x(d)); };
    r["norm"] = [x](DType d) { return norm(x(d)); };
    r["cosine_similarity"] = [x](DType d) { return cosine_similarity(x(d), x(d)); };
    r["cumsum"] = [x](DType d) { return cumsum(x(d), 0); };
    r["cumprod"] = [x](DType d) { return cumprod(x(d), 0); };
    r["logcumsumexp"] = [x](DType d) { return logcumsumexp(x(d), 0); };

    r["layer_norm"] = [x](DType d) { return layer_norm(x(d), of({4}), of({4})); };
    r["rms_norm"] = [x](DType d) { return rms_norm(x(d), of({4})); };
    r["batch_norm"] = [x](DType d) { return batch_norm(x(d), of({4}), of({4})).y; };
    r["group_norm"] = [x](DType d) { return group_norm(x(d), 2, of({4}), of({4})); };
    r["instance_norm"] = [](DType d) { return instance_norm(of({2, 3, 3, 4}, d)); };

    r["cross_entropy"] = [x](DType d) { return cross_entropy(x(d), index_zeros({4})); };
    r["nll_loss"] = [x](DType d) { return nll_loss(x(d), index_zeros({4})); };
    r["multi_margin_loss"] = [x](DType d) { return multi_margin_loss(x(d), index_zeros({4})); };
    r["mse_loss"] = [x](DType d) { return mse_loss(x(d), x(d)); };
    r["l1_loss"] = [x](DType d) { return l1_loss(x(d), x(d)); };
    r["smooth_l1_loss"] = [x](DType d) { return smooth_l1_loss(x(d), x(d)); };
    r["huber_loss"] = [x](DType d) { return huber_loss(x(d), x(d)); };
    r["binary_cross_entropy"] = [x](DType d) { return binary_cross_entropy(x(d), x(d)); };
    r["binary_cross_entropy_with_logits"] = [x](DType d) {
      return binary_cross_entropy_with_logits(x(d), x(d));
    };
    r["kl_div"] = [x](DType d) { return kl_div(x(d), x(d)); };
    r["sigmoid_focal_loss"] = [x](DType d) { return sigmoid_focal_loss(x(d), x(d)); };
    r["margin_ranking_loss"] = [](DType d) {
      return margin_ranking_loss(of({4}, d), of({4}, d), of({4}));
    };
    r["cosine_embedding_loss"] = [x](DType d) {
      return cosine_embedding_loss(x(d), x(d), of({4}));
    };
    r["triplet_margin_loss"] = [x](DType d) { return triplet_margin_loss(x(d), x(d), x(d)); };

    r["concat"] = [x](DType d) { return concat({x(d), of({4, 4})}, 0); };
    r["scatter"] = [x](DType d) { return scatter(x(d), 0, index_zeros({4, 4}), of({4, 4})); };
    r["scatter_add"] = [x](DType d) {
      return scatter_add(x(d), 0, index_zeros({4, 4}), of({4, 4}));
    };
    r["index_add"] = [x](DType d) { return index_add(x(d), 0, index_zeros({2}), of({2, 4})); };
    r["index_copy"] = [x](DType d) {
      return index_copy(x(d), 0, full({1}, 1, DType::i32), of({1, 4}));
    };
    return r;
  }();
  return all;
}

bool is_among(std::initializer_list<std::string> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the ops that give f32 whatever they read, and those whose other inputs are in f32 here.
bool always_f32(const std::string& op) {
  return op.ends_with("_loss") || op.ends_with("_entropy") || op.ends_with("with_logits") ||
         op == "kl_div";
}
bool has_f32_inputs(const std::string& op) {
  return op.starts_with("conv") || op.starts_with("scatter") || op.starts_with("index_") ||
         is_among({"matmul", "linear", "attention", "lstm", "gru", "concat"}, op);
}

DType expected_dtype(const std::string& op, AutocastRule rule, DType low, DType input) {
  if (always_f32(op) || rule == AutocastRule::f32) return DType::f32;
  if (rule == AutocastRule::low) return low;
  return has_f32_inputs(op) ? DType::f32 : input;
}

}  // namespace

TEST_CASE("autocast: the dtype that every listed op gives, as listed and with other rules") {
  on_each_device([] {
    if (default_device()->info().backend == "vulkan" && is_brief()) return;
    const NoGrad guard;
    for (const auto& [op, rule] : Autocast::ops()) {
      INFO(op);
      REQUIRE(runs().contains(op));
      const RunOp& run = runs().at(op);
      for (const DType input : {DType::f16, DType::f32}) {
        INFO("from ", std::string(name(input)));
        {
          const Autocast autocast(DType::f16);
          CHECK(Autocast::rule(op) == rule);
          CHECK(run(input).dtype() == expected_dtype(op, rule, DType::f16, input));
        }
        {
          const Autocast autocast(DType::f16, {.f32 = {op}});
          CHECK(run(input).dtype() == DType::f32);
        }
        {
          const Autocast autocast(DType::f16, {.low = {op}});
          CHECK(run(input).dtype() == expected_dtype(op, AutocastRule::low, DType::f16, input));
        }
        {
          const Autocast autocast(DType::f16, {.keep = {op}});
          CHECK(run(input).dtype() == expected_dtype(op, AutocastRule::keep, DType::f16, input));
        }
      }
    }
    CHECK(runs().size() == Autocast::ops().size());
  });
}

TEST_CASE_FIXTURE(CpuDevice, "autocast: the dtypes are PyTorch's" * doctest::test_suite("host")) {
  struct Golden {
    const char* op;
    DType from_low, from_f32;
  };
  const Golden goldens[] = {
#include "tests/goldens/autocast.inc"
  };
  const NoGrad guard;
  for (const auto& [op, from_low, from_f32] : goldens) {
    INFO(op);
    const Autocast autocast(DType::f16);
    // docs/mixed-precision.md documents this.
    const bool keeps = is_among({"layer_norm", "rms_norm", "group_norm"}, op);
    const bool widens = is_among({"var", "logcumsumexp"}, op);
    const DType low = keeps ? DType::f16 : widens ? DType::f32 : from_low;
    CHECK(runs().at(op)(DType::f16).dtype() == low);
    CHECK(runs().at(op)(DType::f32).dtype() == from_f32);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "autocast: scopes inside each other" * doctest::test_suite("host")) {
  const NoGrad guard;
  const Tensor x = of({4, 4});
  const auto product = [&] { return matmul(x, x).dtype(); };
  CHECK(product() == DType::f32);
  {
    const Autocast outer(DType::f16, {.f32 = {"linear"}, .low = {"relu"}});
    CHECK(product() == DType::f16);
    CHECK(relu(x).dtype() == DType::f16);
    {
      const Autocast off(DType::f16, false);
      CHECK(product() == DType::f32);
      CHECK(relu(x).dtype() == DType::f32);
      CHECK(Autocast::input(x).dtype() == DType::f32);
      {
        const Autocast on(DType::f16);
        CHECK(product() == DType::f16);
        CHECK(relu(x).dtype() == DType::f32);  // inside `off` there were no rules
      }
    }
    {
      const Autocast inner(DType::f16, {.f32 = {"matmul"}});
      CHECK(product() == DType::f32);
      CHECK(linear(x, x).dtype() == DType::f32);
      CHECK(relu(x).dtype() == DType::f16);  // the outer scope's rules
    }
    CHECK(product() == DType::f16);
    CHECK(linear(x, x).dtype() == DType::f32);
  }
  CHECK(product() == DType::f32);
  CHECK(Autocast::rule("matmul") == AutocastRule::keep);
}

TEST_CASE("autocast: errors" * doctest::test_suite("host")) {
  CHECK_THROWS_AS(Autocast(DType::i32), DTypeError);
  CHECK_THROWS_WITH_AS(Autocast(DType::f16, {.low = {"matmul", "marmul"}}),
                       "[autocast] an op must be one of Autocast::ops(), got 'marmul'", ValueError);
  CHECK_THROWS_WITH_AS(Autocast(DType::f16, {.f32 = {"softmax"}, .low = {"softmax"}}),
                       "[autocast] an op must be in one list once, got 'softmax' again",
                       ValueError);
  CHECK(thread_state().autocasts.empty());
}

namespace {

// Returns the listed rule; `keep` for an op that is not listed.
AutocastRule rule_of(std::string op) {
  if (op == "pow_scalar") op = "pow";
  for (const auto& [name, rule] : Autocast::ops())
    if (name == op) return rule;
  return AutocastRule::keep;
}

// Looks at recorded ops: the outputs of listed ops have the listed dtypes.
class Watch : public Tape::Observer {
 public:
  Watch() { Tape::current()->add_observer(*this); }
  ~Watch() override { Tape::current()->remove_observer(*this); }
  bool records_all() const override { return true; }
  void after_forward(int64_t, const Record& record, std::span<const Tensor>) override {
    const std::string op = record.op->name;
    const AutocastRule rule = rule_of(op);
    if (rule == AutocastRule::keep || !is_float(record.outputs[0].dtype)) return;
    ++seen;
    CHECK_MESSAGE(record.outputs[0].dtype == expected_dtype(op, rule, DType::f16, DType::f32), op);
  }
  int seen = 0;
};

}  // namespace

TEST_CASE("autocast: every row of the op table, and its replay outside of the scope") {
  on_each_device([] {
    if (default_device()->info().backend == "vulkan" && is_brief()) return;
    int seen = 0;
    for (const OpCase& row : op_cases()) {
      INFO(row.name);
      const auto run = [&](bool segment) {
        return [&, segment](const Tensors& in) {
          const Autocast autocast(DType::f16);
          const CheckpointScope scope(segment);
          Tensors scaled;
          for (const Tensor& t : in) scaled.push_back(is_float(t.dtype()) ? t * 1.25f : t);
          Tensors outputs = row.run(scaled);
          for (Tensor& y : outputs)
            if (is_float(y.dtype())) y = relu(std::move(y));
          return outputs;
        };
      };
      const Evaluated plain = evaluate(make_inputs(row), run(false));
      const Evaluated replayed = evaluate(make_inputs(row), run(true));
      CHECK(replayed.outputs == plain.outputs);
      CHECK(replayed.gradients == plain.gradients);
      const Watch watch;
      evaluate(make_inputs(row), run(false));
      seen += watch.seen;
    }
    CHECK(seen > 400);
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "autocast: sums of many halves do not overflow" * doctest::test_suite("host")) {
  const NoGrad guard;
  const Tensor x = full({1000}, 300, DType::f16);
  CHECK(std::isinf(sum(x).item()));  // no scope applies, and 300000 overflows in f16
  const Autocast autocast(DType::f16);
  CHECK(sum(x).item() == 300000);
  CHECK(square(x).to_vector()[0] == 90000);
  CHECK(mean(x).item() == 300);
  CHECK(norm(x).item() == doctest::Approx(300 * std::sqrt(1000.0)));
}
