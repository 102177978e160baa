// Updates fused into backward when the memory runs out half-way.
#include "core/autograd/tape.h"
#include "optim/accumulation/adama.h"
#include "optim/accumulation/fused_backward.h"
#include "optim/adam.h"
#include "optim/ema.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// Passes a value through. The gradient with this number needs more memory than there is.
int greedy_call = 0;
const Op greedy = {.name = "greedy",
                   .forward =
                       [](const std::any&, std::span<Tensor> inputs) {
                         return std::vector<Tensor>{copy_of(inputs[0], inputs[0].dtype())};
                       },
                   .vjp =
                       [](Record&, std::span<Tensor> dy) {
                         if (--greedy_call == 0) (void)empty({int64_t{1} << 50});
                         return std::vector<Tensor>{std::move(dy[0])};
                       }};

}  // namespace

TEST_CASE("fused backward: what runs out of memory half-way has ended, and the next one works") {
  on_each_device([] {
    // `late` is complete before the memory runs out, and `tied` has one of its two gradients then.
    struct Parameters {
      Tensor early = parameter({1, 2}, "early"), tied = parameter({3, 4}, "tied"),
             late = parameter({5, 6}, "late");
      std::vector<Tensor> all() const { return {early, tied, late}; }
      Tensor loss() const { return sum(apply1(greedy, {}, {early * tied}) * tied * late); }
      Values values() const {
        Values all;
        for (const Tensor& p : this->all())
          for (const float v : p.to_vector()) all.push_back(v);
        return all;
      }
    };
    const auto make = [](const Parameters& p) { return AdamW(p.all(), {.lr = 0.1f}); };
    struct Failure {
      FusedPasses passes;
      int call;
      bool changes;
    };
    for (const auto& [passes, call, changes] :
         {Failure{FusedPasses::one, 1, true}, Failure{FusedPasses::two, 1, false},
          Failure{FusedPasses::two, 2, true}}) {
      Parameters plain, fused;
      AdamW expected = make(plain);
      FusedBackward optimizer(make(fused), passes);
      Ema average(optimizer, {.decay = 0.5f}), expected_average(expected, {.decay = 0.5f});
      if (changes) {  // updates `late` alone
        plain.loss().backward();
        plain.early.set_grad({}), plain.tied.set_grad({});
        expected.step();
        expected.zero_grad();
      }
      greedy_call = call;
      const std::string text = message_of<OutOfMemory>([&] { optimizer.backward(fused.loss()); });
      CAPTURE(text);
      CHECK(contains(text, changes ? "1 of 3 parameters, and what they changed stays: [late]"
                                   : "0 of 3 parameters"));
      CHECK(optimizer.taken() ==
            (changes ? std::vector<std::string>{"late"} : std::vector<std::string>{}));
      CHECK(optimizer.updates() == (changes ? 1 : 0));
      CHECK(fused.values() == plain.values());
      for (const Tensor& p : fused.all()) CHECK(!p.grad());
      CHECK(!optimizer.step());
      for (int t = 0; t < 2; ++t) {
        plain.loss().backward();
        expected.step();
        expected.zero_grad();
        optimizer.backward(fused.loss());
        CHECK(optimizer.step());
        CHECK(fused.values() == plain.values());
        CHECK(optimizer.taken() == std::vector<std::string>{"late", "early", "tied"});
      }
      average.apply(), expected_average.apply();
      CHECK(fused.values() == plain.values());
      average.restore(), expected_average.restore();
      // An update that is refused changes nothing.
      CHECK_THROWS_AS(optimizer.backward(sum(fused.late.detach())), AutogradError);
      CHECK(optimizer.taken().empty());
      optimizer.backward(fused.loss());
      CHECK(optimizer.step());
    }

    // The window of AdamA continues: the gradients that had come count.
    Parameters plain, folded;
    AdamA expected(plain.all(), 2), optimizer(folded.all(), 2);
    greedy_call = 1;
    const std::string text = message_of<OutOfMemory>([&] { optimizer.backward(folded.loss()); });
    CHECK(contains(text, "[late]"));
    CHECK(optimizer.position() == 1);
    expected.backward(sum((plain.early * plain.tied * plain.tied).detach() * plain.late));
    expected.step();
    CHECK_THROWS_AS(optimizer.backward(sum(folded.late.detach())), AutogradError);
    CHECK(optimizer.position() == 1);
    for (int t = 0; t < 3; ++t) {
      expected.backward(plain.loss());
      optimizer.backward(folded.loss());
      CHECK(optimizer.step() == expected.step());
      CHECK(folded.values() == plain.values());
    }
  });
}
