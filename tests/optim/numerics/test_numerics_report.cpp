// The report of a NumericsMonitor, from histories of values that are made up by hand.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <deque>

#include "optim/numerics/numerics_report.h"
#include "shaders/params.h"
#include "tests/fixtures/message_of.h"

namespace rw::test {

namespace {

class Histories {
 public:
  using Words = std::array<int32_t, HISTORY_SIZE>;

  // Adds a value that was counted in four steps, and returns what was counted.
  Words& add(const std::string& name, ValueKind kind, DType dtype = DType::f16,
             bool is_result = false) {
    Words& words = words_.emplace_back();
    words[HISTORY_STEPS] = 4;
    values_.push_back({.kind = kind,
                       .op = "mul (op 2)",
                       .tensor = name,
                       .dtype = dtype,
                       .is_result = is_result,
                       .words = words});
    return words;
  }
  // Adds one that was not finite in `times` steps, the first of which was `step`.
  void add_overflow(const std::string& name, ValueKind kind, int32_t step, int32_t times,
                    bool is_result = false) {
    Words& words = add(name, kind, DType::f16, is_result);
    const Words first = {step, step + 10, 3, 5, std::bit_cast<int32_t>(8.0f)};
    std::copy_n(first.begin(), 5, words.begin() + HISTORY_OVERFLOW);
    words[HISTORY_OVERFLOWS] = times;
  }
  NumericsReport report() const { return numerics_report(values_); }

 private:
  std::deque<Words> words_;
  std::vector<ValueHistory> values_;
};

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("numerics report: the first gradient that is lost, after others that were not") {
  Histories none;
  none.add("first", ValueKind::gradient)[HISTORY_ZEROS] = 4;
  CHECK(!none.report().vanished);  // none had more
  CHECK(none.report().gradients == 1);

  Histories some;
  some.add("first", ValueKind::gradient)[HISTORY_ZEROS] = 4;
  some.add("there", ValueKind::gradient)[HISTORY_ZEROS] = 3;
  some.add("wide", ValueKind::gradient, DType::f32)[HISTORY_ZEROS] = 4;
  some.add("output", ValueKind::output)[HISTORY_ZEROS] = 4;
  CHECK(!some.report().vanished);
  some.add("lost", ValueKind::gradient)[HISTORY_ZEROS] = 4;
  some.add("behind it", ValueKind::gradient)[HISTORY_ZEROS] = 4;
  const NumericsReport report = some.report();
  REQUIRE(report.vanished);
  CHECK(report.vanished->tensor == "lost");
  CHECK(report.gradients == 4);
  CHECK(report.values == 6);
  CHECK(report.denormal_gradients == 0);
  CHECK(contains(report.str(),
                 "\nfirst gradient of zeros: lost, made by the vjp of mul (op 2), f16"));
}

TEST_CASE("numerics report: gradients that are denormal in most steps, before outputs that are") {
  Histories values;
  const auto add = [&](const std::string& name, ValueKind kind, int32_t step, int32_t times) {
    Histories::Words& words = values.add(name, kind);
    const Histories::Words first = {step, step, 7, 2, std::bit_cast<int32_t>(1.0f)};
    std::copy_n(first.begin(), 5, words.begin() + HISTORY_UNDERFLOW);
    words[HISTORY_UNDERFLOWS] = times;
  };
  add("output", ValueKind::output, 1, 4);
  NumericsReport report = values.report();
  REQUIRE(report.underflow);
  CHECK(contains(report.underflow->str(), "7 of 9 elements that are not 0 are denormal"));
  CHECK(contains(report.underflow->str(), "changes nothing in the forward"));
  add("late", ValueKind::gradient, 3, 2);
  add("early", ValueKind::gradient, 2, 3);
  add("as early", ValueKind::gradient, 2, 4);
  report = values.report();
  CHECK(report.underflow->tensor == "early");
  CHECK(report.underflow->step == 2);
  CHECK(contains(report.underflow->str(), "raise the loss scale"));
  CHECK(report.gradients == 3);
  CHECK(report.denormal_gradients == 2);  // in more than half of the steps
}

TEST_CASE("numerics report: what is never finite is harmless while steps go well with it") {
  Histories values;
  values.add_overflow("mask", ValueKind::input, 1, 4);
  CHECK(!values.report().overflow);
  CHECK(values.report().harmless == std::vector<std::string>{"mask of mul (op 2)"});
  values.add_overflow("late", ValueKind::output, 2, 1);
  values.add_overflow("product", ValueKind::output, 1, 1);
  values.add_overflow("gradient of 'w'", ValueKind::parameter_gradient, 3, 1, true);
  values.add_overflow("loss", ValueKind::output, 1, 1, true);
  NumericsReport report = values.report();
  REQUIRE(report.overflow);
  CHECK(report.overflow->tensor == "product");
  CHECK(report.overflow->step == 1);
  CHECK(report.overflow->update == 11);
  CHECK(report.overflow->nans == 3);
  CHECK(report.overflow->infinities == 5);
  CHECK(report.overflow->scale == 8);
  CHECK(report.harmless.size() == 1);
  // Where no step goes well, the mask may be why.
  Histories bad;
  bad.add_overflow("mask", ValueKind::input, 1, 4);
  bad.add_overflow("loss", ValueKind::output, 1, 4, true);
  report = bad.report();
  REQUIRE(report.overflow);
  CHECK(report.overflow->tensor == "mask");
  CHECK(report.harmless.empty());
}

TEST_CASE("numerics report: each finding has its place and its advice") {
  const NumericsFinding plain{.step = 2,
                              .update = 1,
                              .op = "mul",
                              .tensor = "output 0",
                              .dtype = DType::f16,
                              .scale = 8,
                              .nans = 1,
                              .infinities = 1};
  const auto text = [&](const auto& change) {
    NumericsFinding finding = plain;
    change(finding);
    return finding.str();
  };
  const auto same = [](NumericsFinding&) {};
  CHECK(contains(text(same),
                 "step 2 (update 1, loss scale 8): output 0 of mul, f16: 1 NaN and 1 inf"));
  CHECK(contains(text(same), "The forward overflows in f16"));
  CHECK(contains(text([](auto& f) { f.infinities = 0; }), "All of its inputs were finite"));
  CHECK(contains(text([](auto& f) { f.kind = ValueKind::input; }), "It came from outside"));
  for (const ValueKind kind : {ValueKind::gradient, ValueKind::parameter_gradient}) {
    const auto gradient = [&](const auto& change) {
      return text([&](auto& f) {
        f.kind = kind;
        change(f);
      });
    };
    CHECK(contains(gradient(same), "output 0, made by the vjp of mul, f16: "));
    CHECK(contains(gradient(same), "too large for f16"));
    CHECK(contains(gradient(same), "lower than 8"));
    CHECK(contains(gradient([](auto& f) { f.dtype = DType::f32; }), "too large for f32"));
    CHECK(contains(gradient([](auto& f) { f.scale = 1; }), "too large for f16"));
    CHECK(contains(gradient([](auto& f) { f.dtype = DType::f32, f.scale = 1; }),
                   "it diverges by itself"));
    CHECK(contains(gradient([](auto& f) { f.infinities = 0; }), "the gradient of this op"));
  }
  CHECK(contains(text([](auto& f) { f.segment = 0; }), "of mul, f16, in checkpoint segment 0: "));
  CHECK(contains(text([](auto& f) { f.step = 0; }), "nothing but zeros in every step"));

  NumericsReport report{.steps = 5, .values = 6};
  CHECK(report.str() ==
        "5 steps watched, 6 values in each\nno overflow was seen\nno value of 16 bits was mostly "
        "denormal\n");
  report.left_out = 1;
  report.harmless = {"a mask"};
  CHECK(contains(report.str(), "(1 times one was left out: allow more values)"));
  CHECK(contains(report.str(), "without harm to losses and gradients: a mask\n"));
  report.harmless.push_back("another");
  CHECK(contains(report.str(), "gradients: a mask and 1 more\n"));
}

TEST_SUITE_END();

}  // namespace rw::test
