#include <memory>

#include "benchmarks/speed/cases.h"
#include "core/memory/default_device.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace rw::speed {

namespace {

// 10.6 million parameters in 48 tensors: updates by given gradients.
std::vector<Tensor> parameters() {
  std::vector<Tensor> all;
  for (int i = 0; i < 12; ++i)
    for (const Shape& shape : {Shape{768, 768}, Shape{768, 384}, Shape{768}, Shape{384}})
      all.push_back(standard_values(shape, DType::f32, true));
  return all;
}

// `passes`: how often a parameter's size is read and written.
template <class Rule, class Options>
Case update(const std::string& name, double passes, const Options& options) {
  const double bytes = passes * 4 * 12 * (768.0 * 768 + 768 * 384 + 768 + 384);
  return {"optimizer/" + name, 0, bytes, [options](DType) -> Work {
            const std::vector<Tensor> all = parameters();
            const auto optimizer = std::make_shared<Rule>(all, options);
            for (Tensor w : all) w.set_grad(standard_values(w.shape()));
            return [optimizer] {
              optimizer->step();
              default_device()->end_step();
            };
          }};
}

}  // namespace

std::vector<Case> optimizer_cases() {
  return {update<SGD>("sgd", 5, SGDOptions{.lr = 1e-4f, .momentum = 0.9f}),
          update<Adam>("adam", 7, AdamOptions{.lr = 1e-4f}),
          update<AdamW>("adamw", 7, AdamWOptions{.lr = 1e-4f})};
}

}  // namespace rw::speed
