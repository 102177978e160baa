// Loss scaling: whole sequences of scales against models of the rules, and the names of scalers.
#include <cmath>
#include <functional>
#include <memory>

#include "optim/accumulation/accumulate.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// The same as in tests/goldens/make_grad_scaler_goldens.py: `often` among 256 updates overflow.
std::vector<bool> overflow_pattern(size_t count, uint32_t seed, uint32_t often) {
  std::vector<bool> bad;
  for (uint32_t state = seed; bad.size() < count;) {
    state = state * 1664525u + 1013904223u;
    bad.push_back(state >> 24 < often);
  }
  return bad;
}

// The two rule sets as their authors publish them, written for the host.

// torch.amp.GradScaler (_amp_update_scale_): a growth tracker; no floor.
struct GradScalerModel {
  float scale, growth, backoff;
  uint32_t interval, tracker = 0;

  float update(bool bad) {
    if (bad) {
      scale *= backoff;
      tracker = 0;
    } else if (++tracker == interval) {
      if (std::isfinite(scale * growth)) scale *= growth;
      tracker = 0;
    }
    return scale;
  }
};

// tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager: good steps must be consecutive, bad
// ones add up; both counts are cleared when the scale is set; it is at least 1.
struct TensorFlowModel {
  float scale;
  uint32_t incr_every, decr_every;
  float incr_ratio, decr_ratio;
  uint32_t good = 0, bad = 0;

  float update(bool overflowed) {
    if (overflowed) {
      if (bad + 1 >= decr_every)
        set(std::max(1.0f, scale * decr_ratio));
      else
        ++bad, good = 0;
    } else if (good + 1 >= incr_every) {
      set(std::isfinite(scale * incr_ratio) ? scale * incr_ratio : scale);
    } else {
      ++good;
    }
    return scale;
  }
  void set(float value) {
    scale = value;
    good = bad = 0;
  }
};

// Returns the scales after each update, with `micro_batches` per update, one of which overflows in
// the updates that do.
Values scales_after(const LossScaler& scaler, const std::vector<bool>& bad,
                    uint32_t micro_batches = 1) {
  Tensor w = parameter({0});
  Accumulate sgd(SGD({w}), micro_batches);
  sgd.set_scaler(scaler);
  Values seen;
  for (size_t update = 0; update < bad.size(); ++update) {
    for (uint32_t i = 0; i < micro_batches; ++i) {
      const bool overflows = bad[update] && i == update % micro_batches;
      sgd.zero_grad();
      sgd.backward(loss_with(w, {overflows ? infinity : 0}));
      sgd.step();
    }
    seen.push_back(sgd.loss_scale());
  }
  CHECK(sgd.skipped() == static_cast<uint64_t>(std::count(bad.begin(), bad.end(), true)));
  CHECK(sgd.updates() + sgd.skipped() == bad.size());
  CHECK(w.item() == 0);
  return seen;
}

template <class Model>
Values expected_scales(Model model, const std::vector<bool>& bad) {
  Values seen;
  for (const bool b : bad) seen.push_back(model.update(b));
  return seen;
}

struct GoldenScales {
  float initial, growth, backoff;
  uint32_t interval, seed, often;
  Values scales;
};
const std::vector<GoldenScales> golden_scales = {
#include "tests/goldens/grad_scaler.inc"
};

}  // namespace

TEST_CASE("loss scale: PyTorch's GradScaler over 400 updates") {
  on_each_device([] {
    for (const GoldenScales& golden : golden_scales) {
      INFO("seed ", golden.seed);
      const std::vector<bool> bad =
          overflow_pattern(golden.scales.size(), golden.seed, golden.often);
      LossScaler scaler =
          LossScaler::dynamic(golden.initial, golden.growth, golden.backoff, golden.interval);
      scaler.floor = 0x1p-100f;  // PyTorch has none
      CHECK(scales_after(scaler, bad) == golden.scales);
      CHECK(expected_scales(
                GradScalerModel{golden.initial, golden.growth, golden.backoff, golden.interval},
                bad) == golden.scales);
    }
  });
}

TEST_CASE("loss scale: TensorFlow's manager over 400 updates") {
  on_each_device([] {
    for (uint32_t seed = 1; seed <= 4; ++seed)
      for (const uint32_t decr_every : {1u, 2u, 3u}) {
        INFO("seed ", seed, ", decr_every ", decr_every);
        const std::vector<bool> bad = overflow_pattern(400, seed, 10 + 20 * seed);
        const uint32_t incr_every = 3 + seed;
        const LossScaler scaler = LossScaler::tensorflow(32768, incr_every, decr_every);
        const Values model =
            expected_scales(TensorFlowModel{32768, incr_every, decr_every, 2, 0.8f}, bad);
        CHECK(scales_after(scaler, bad) == model);
        CHECK(std::adjacent_find(model.begin(), model.end(), std::less()) != model.end());
        CHECK(std::adjacent_find(model.begin(), model.end(), std::greater()) != model.end());
      }
  });
}

TEST_CASE("loss scale: overflows in a window's first, middle or last micro-batch") {
  on_each_device([] {
    for (const uint32_t n : {1u, 3u}) {
      INFO(n, " micro-batches");
      const std::vector<bool> bad = overflow_pattern(150, 7, 40);
      LossScaler scaler = LossScaler::dynamic(4096, 2, 0.5f, 5);
      scaler.floor = 0x1p-100f;
      CHECK(scales_after(scaler, bad, n) ==
            expected_scales(GradScalerModel{4096, 2, 0.5f, 5}, bad));
      CHECK(scales_after(LossScaler::tensorflow(4096, 5), bad, n) ==
            expected_scales(TensorFlowModel{4096, 5, 2, 2, 0.8f}, bad));
    }
  });
}

TEST_CASE("loss scale: what scalers are called" * doctest::test_suite("host")) {
  CHECK(parse_loss_scale("none") == LossScaler::none());
  CHECK(parse_loss_scale("fixed:128") == LossScaler::fixed(128));
  CHECK(parse_loss_scale("dynamic") == LossScaler::dynamic());
  CHECK(parse_loss_scale("dynamic:1024:4:0.25:100") == LossScaler::dynamic(1024, 4, 0.25f, 100));
  CHECK(parse_loss_scale("dynamic:1024") == LossScaler::dynamic(1024));
  CHECK(parse_loss_scale("tensorflow") == LossScaler::tensorflow(32768, 2000));
  CHECK(parse_loss_scale("tensorflow:64:10:3:4:0.5") == LossScaler::tensorflow(64, 10, 3, 4, 0.5f));
  for (const char* text : {"none", "fixed:128", "fixed:0.1", "dynamic:1024:4:0.25:100",
                           "tensorflow:64:10:3:4:0.8", "dynamic:65536:2:0.5:2000"})
    CHECK(loss_scale_text(parse_loss_scale(text)) == text);
  CHECK(loss_scale_text(LossScaler::fixed(1)) == "none");
  for (const char* text :
       {"", "Dynamic", "fixed", "fixed:", "fixed:x", "fixed:1:2", "none:1",
        "dynamic:", "dynamic:1x", "dynamic:1:2:0.5:2000:1", "dynamic:1024:2:0.5:-1",
        "dynamic:1024:2:0.5:1.5", "tensorflow:64:10:3:4:0.5:1", "fixed:128 "}) {
    INFO(text);
    const std::string message = message_of<ValueError>([&] { parse_loss_scale(text); });
    CHECK(message.find("[loss_scale] must be none, fixed:N, dynamic[:INITIAL") == 0);
    CHECK_THROWS_AS(parse_loss_scale(text), ValueError);
  }
  for (const char* text : {"fixed:0", "fixed:-8", "fixed:inf", "fixed:nan", "dynamic:0",
                           "dynamic:1024:0.5", "dynamic:1024:2:1", "dynamic:1024:2:0.5:0"})
    CHECK_THROWS_AS(parse_loss_scale(text), ValueError);
  CHECK(default_scaler(DType::f16) == LossScaler::dynamic());
  CHECK(default_scaler(DType::f32) == LossScaler::none());
}

namespace {

// Returns the diagnosis after updates that were finite, or not.
std::string diagnosis(const LossScaler& scaler, const std::vector<bool>& bad) {
  Tensor w = parameter({0});
  SGD sgd({w});
  sgd.set_scaler(scaler);
  for (const bool b : bad) {
    sgd.zero_grad();
    sgd.backward(loss_with(w, {b ? infinity : 0}));
    sgd.step();
  }
  return sgd.diagnose();
}

}  // namespace

TEST_CASE("loss scale: the diagnosis of a scale that only falls") {
  on_each_device([] {
    std::vector<bool> bad;  // every fourth overflows, growth would take five
    for (int i = 0; i < 48; ++i) bad.push_back(i % 4 == 3);
    LossScaler scaler = LossScaler::dynamic(65536, 2, 0.5f, 5);
    CHECK(contains(diagnosis(scaler, bad), "the scale only falls, 12 times since it last grew"));
    bad.resize(36);  // 9 falls may be the start of a healthy run
    CHECK(contains(diagnosis(scaler, bad), "normal"));
    scaler.interval = 3;  // here it grows between them
    CHECK(contains(diagnosis(scaler, std::vector<bool>(bad)), "normal"));
    scaler =
        LossScaler::dynamic(4, 2, 0.5f, 5);  // at its floor it falls no more, but updates continue
    CHECK(contains(diagnosis(scaler, bad), "at its floor"));
  });
}

TEST_CASE("loss scale: the diagnosis of a scale that never overflowed") {
  on_each_device([] {
    CHECK(contains(diagnosis(LossScaler::dynamic(8, 2, 0.5f, 3), std::vector<bool>(10)),
                   "never an overflow, though the scale grew 3 times"));
    LossScaler scaler = LossScaler::dynamic(8, 2, 0.5f, 1);
    scaler.ceiling = 16;
    CHECK(contains(diagnosis(scaler, std::vector<bool>(3)), "at its ceiling"));
  });
  const UpdateCounts quiet{.scale = 1024, .updates = 5000};
  CHECK(contains(diagnose(LossScaler::fixed(1024), quiet), "a higher one, or a dynamic one"));
  CHECK(contains(diagnose(LossScaler::dynamic(1024, 2, 0.5f, 10000), quiet),
                 "its interval is 10000"));
  CHECK(contains(diagnose(LossScaler::none(), {.updates = 5000}), "no overflow so far."));
  CHECK(contains(diagnose(LossScaler::fixed(8), {.scale = 8, .updates = 90, .skipped = 3}),
                 "a lower scale would lose no update"));
  CHECK(contains(
      diagnose(LossScaler::none(), {.updates = 9, .denormal_gradients = 0.5}),
      "In 50 % of the 16-bit gradients most values are denormal: start from a higher scale."));
  CHECK(contains(
      diagnose(LossScaler::dynamic(), {.updates = 9, .falls = 3, .denormal_gradients = 0.5}),
      "allow no higher scale"));
}

TEST_CASE("loss scale: the diagnosis changes at the limits that it names") {
  const LossScaler dynamic = LossScaler::dynamic(65536, 2, 0.5f, 3000);
  LossScaler patient = dynamic;
  patient.hysteresis = 2;
  const char *floor = "is at its floor", *whatever = "whatever the scale was",
             *falling = "still falling", *normal = ": normal;", *most = "most updates were skipped",
             *only_falls = "the scale only falls, 10 times", *none = ": no overflow so far.",
             *ceiling = "at its ceiling", *quiet = "has not grown (its interval is 3000)";
  const std::tuple<LossScaler, UpdateCounts, const char*> cases[] = {
      {dynamic, {.scale = 1, .updates = 9, .skipped = 1, .skipped_in_a_row = 1}, floor},
      {dynamic, {.scale = 1.5f, .updates = 9, .skipped = 1, .skipped_in_a_row = 1}, normal},
      {dynamic, {.scale = 1, .updates = 9, .skipped = 1}, normal},
      {dynamic, {.scale = 4, .updates = 90, .skipped = 20, .skipped_in_a_row = 20}, normal},
      {dynamic, {.scale = 4, .updates = 90, .skipped = 21, .skipped_in_a_row = 21}, whatever},
      {patient, {.scale = 4, .updates = 90, .skipped = 40, .skipped_in_a_row = 40}, normal},
      {patient, {.scale = 4, .updates = 90, .skipped = 41, .skipped_in_a_row = 41}, whatever},
      {dynamic, {.scale = 4, .updates = 0, .skipped = 1, .skipped_in_a_row = 1}, falling},
      {dynamic, {.scale = 4, .updates = 0, .voided = 1}, normal},
      {dynamic, {.scale = 4, .updates = 9, .skipped = 1, .voided = 1}, normal},
      {dynamic, {.scale = 4, .updates = 5, .skipped = 5}, normal},
      {dynamic, {.scale = 4, .updates = 5, .skipped = 6}, most},
      {dynamic, {.scale = 4, .updates = 50, .skipped = 9, .falls = 9}, normal},
      {dynamic, {.scale = 4, .updates = 50, .skipped = 10, .falls = 10}, only_falls},
      {dynamic, {.scale = dynamic.ceiling, .updates = 9, .growths = 4}, ceiling},
      {dynamic, {.scale = dynamic.ceiling / 2, .updates = 9, .growths = 1}, "grew 1 times"},
      {dynamic, {.scale = 65536, .updates = 1999}, none},
      {dynamic, {.scale = 65536, .updates = 2000}, quiet},
      {LossScaler::none(), {.updates = 2000}, none},
      {LossScaler::fixed(8),
       {.scale = 8, .updates = 9, .skipped = 1, .skipped_in_a_row = 1},
       "the scale cannot fall"}};
  for (const auto& [scaler, counts, text] : cases) {
    CAPTURE(text);
    CHECK(contains(diagnose(scaler, counts), text));
    CHECK(contains(diagnose(scaler, counts), "micro-batches voided") == (counts.voided > 0));
  }
  const auto denormal = [](UpdateCounts counts) { return diagnose(LossScaler::dynamic(), counts); };
  CHECK(contains(denormal({.updates = 9, .denormal_gradients = 0.1}), "In 10 % of the 16-bit"));
  CHECK(!contains(denormal({.updates = 9, .denormal_gradients = 0.0999}), "16-bit"));
  CHECK(contains(
      denormal({.updates = 9, .skipped = 1, .skipped_in_a_row = 1, .denormal_gradients = 1}),
      "allow no higher scale"));
  for (const char* words : {"dynamic:1:2:0.5:7:1", "none:1", "fixed", "fixed:1:1", "dynamic:x",
                            "tensorflow:1:2:3:4:5:6", "dynamic:2 "})
    CHECK_THROWS_AS(parse_loss_scale(words), ValueError);
  CHECK(loss_scale_text(parse_loss_scale("dynamic:8:4:0.25:7")) == "dynamic:8:4:0.25:7");
  CHECK(loss_scale_text(parse_loss_scale("tensorflow:8:7:3:4:0.25")) == "tensorflow:8:7:3:4:0.25");
}

TEST_CASE("loss scaling: the gradient is unscaled in the update") {
  on_each_device([] {
    const Values start = some_values(9), gradient = some_values(9, 3);
    Tensor a = parameter(start), b = parameter(start);
    Adam plain({a}), scaled({b});
    scaled.set_scaler(LossScaler::fixed(1024));  // powers of two change no bit
    one_step(plain, a, gradient);
    one_step(scaled, b, gradient);
    CHECK(b.grad().to_vector()[0] == 1024 * gradient[0]);
    CHECK(a.to_vector() == b.to_vector());
    CHECK(scaled.grad_norm() == plain.grad_norm());
  });
}

TEST_CASE("loss scaling: GradScaler's and TensorFlow's rules") {
  on_each_device([] {
    // The scale grows after two finite updates in a row; an overflow halves it at once.
    CHECK(scales_after(LossScaler::dynamic(1024, 2, 0.5f, 2),
                       {false, false, false, true, false, false}) ==
          Values{1024, 2048, 2048, 1024, 1024, 2048});
    // It takes two overflows, and a finite update between them does not reset the count.
    CHECK(scales_after(LossScaler::tensorflow(1024, 3, 2, 2, 0.5f),
                       {true, false, true, false, false, false, true, false}) ==
          Values{1024, 1024, 512, 512, 512, 1024, 1024, 1024});
    LossScaler bounded = LossScaler::dynamic(2, 2, 0.5f, 1);
    bounded.ceiling = 4;
    CHECK(scales_after(bounded, {false, false, true, true, true}) == Values{4, 4, 2, 1, 1});
    CHECK(scales_after(LossScaler::fixed(8), {false, true, false}) == Values{8, 8, 8});
  });
  CHECK_THROWS_AS(LossScaler::fixed(0), ValueError);
  CHECK_THROWS_AS(LossScaler::dynamic(65536, 2, 1.5f), ValueError);
}

TEST_CASE("loss scaling: the diagnosis names the floor" * doctest::test_suite("host")) {
  set_default_device(open_backend("reference"));
  Tensor w = parameter({1});
  SGD sgd({w});
  sgd.set_scaler(LossScaler::dynamic(2));
  one_step(sgd, w, {1});
  CHECK(sgd.diagnose() == "loss scale 2, 1 updates done, 0 skipped: no overflow so far.");
  one_step(sgd, w, {infinity});
  CHECK(sgd.diagnose().find("at its floor") != std::string::npos);
}

TEST_CASE("loss scaling: the diagnosis counts skips in a row") {
  on_each_device([] {
    Tensor w = parameter({1});
    SGD sgd({w});
    LossScaler scaler = LossScaler::dynamic();
    scaler.floor = 1e-20f;
    sgd.set_scaler(scaler);
    const auto overflows = [&](int count) {
      for (int i = 0; i < count; ++i) one_step(sgd, w, {infinity});
      return sgd.diagnose();
    };
    CHECK(overflows(20).find("still falling") != std::string::npos);
    CHECK(overflows(1).find("the last 21 were skipped whatever the scale") != std::string::npos);
    one_step(sgd, w, {1});
    CHECK(overflows(3).find("most updates were skipped") != std::string::npos);
  });
}
