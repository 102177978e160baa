// Checks that every language model has to pass.
#pragma once

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "../../models/causal_lm.h"

namespace rw::test {

// Segments of layers keep less than half of the activations and change no bit of the loss and the
// gradients. make() returns a pointer to a CausalLM of five layers, the same one each time; ids()
// and targets() return its tokens.
template <class Make, class Tokens>
void check_segments(const Make& make, const Tokens& ids, const Tokens& targets) {
  const auto run = [&](int every) {
    const auto model = make();
    model->set_checkpoint(every);
    const Tensor loss = model->loss(ids(), targets());
    const auto live = default_device()->memory_report().live_by_purpose;
    std::vector<std::vector<float>> values = {loss.to_vector()};
    loss.backward();
    for (const Tensor& p : model->parameters()) values.push_back(p.grad().to_vector());
    return std::pair(values, live[static_cast<size_t>(Purpose::activation)]);
  };
  const auto plain = run(0);
  for (const int every : {1, 2}) {
    const auto segments = run(every);
    CHECK(segments.first == plain.first);
    CHECK(segments.second < plain.second / 2);
  }
}

}  // namespace rw::test
