// Several observers watch a tape at a time, also together with a follower that sets segments.
#include "nn/layers.h"
#include "nn/sequential.h"
#include "nn/summary.h"
#include "optim/numerics/numerics_monitor.h"
#include "optim/sgd.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

struct Log : Tape::Observer {
  void before_forward(const Op& op, std::span<const Tensor>) override { add("before", op.name); }
  void after_forward(int64_t, const Record& r, std::span<const Tensor>) override {
    add("after", r.op->name);
  }
  void before_backward(const Tensor&) override { add("backward", ""); }
  void before_vjp(int64_t, const Record& r, std::span<const Tensor>) override {
    add("to", r.op->name);
  }
  void after_vjp(int64_t, const Record& r, std::span<const Tensor>) override {
    add("from", r.op->name);
  }
  void add(const char* what, const char* op) { text += fmt::format("{} {}, ", what, op); }
  std::string text;
};

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "observers: all are told of all, until they are removed") {
  const std::string pass = "before tanh, after tanh, backward , to tanh, from tanh, ";
  Log first, second;
  const Tensor x = leaf(1);
  int called = 0;
  tape().add_observer(first);
  tape().add_observer(second);
  for (int i = 0; i < 2; ++i) tape().before_next_backward([&](const Tensor&) { ++called; });
  tanh(x).backward();
  CHECK(first.text == pass);
  CHECK(second.text == pass);
  CHECK(called == 2);
  tape().remove_observer(first);
  tanh(x).backward();
  CHECK(called == 2);
  CHECK(first.text == pass);
  CHECK(second.text == pass + pass);
  tape().remove_observer(second);
  tanh(x).backward();
  CHECK(second.text == pass + pass);
}

TEST_CASE_FIXTURE(CpuDevice, "observers: monitors, a summary and a plan go together") {
  Sequential model;
  for (int i = 0; i < 4; ++i) {
    model.emplace<Linear>(8, 8);
    model.emplace<Tanh>();
  }
  SGD optimizer(model.parameters(), {.lr = 0.1f});
  const Tensor x = rand({16, 8});
  const size_t rows = summary(model, x).rows.size();
  NumericsMonitor monitor(optimizer), another(optimizer);
  const AutoRecompute recompute({.mode = AutoRecomputeOptions::Mode::memory});
  CHECK(summary(model, x).rows.size() == rows);
  for (int step = 0; step < 3; ++step) {
    mean(square(model(x))).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(tape().replayed_records() > 0);
  CHECK(monitor.report().values > 8);
  CHECK(monitor.report().str() == another.report().str());
  CHECK(summary(model, x).rows.size() == rows);
}

TEST_SUITE_END();

}  // namespace rw::test
