// The model of the mnist program: 784-512-512-10 with dropout.
#pragma once

#include <utility>

#include "../../core/autograd/checkpoint.h"
#include "../../nn/layers.h"

namespace rw {

class Mlp : public Module {
 public:
  Mlp() {
    register_module("hidden1", hidden1_);
    register_module("hidden2", hidden2_);
    register_module("output", output_);
    register_module("dropout", dropout_);
  }
  // Maps [N, 784] to logits [N, 10]. Each of the two segments ends with a dropout.
  Tensor forward(Tensor x) override {
    for (Linear* hidden : {&hidden1_, &hidden2_}) {
      const CheckpointScope scope(layers_per_segment() > 0);
      x = dropout_(relu((*hidden)(std::move(x))));
    }
    return output_(std::move(x));
  }

 private:
  Linear hidden1_{784, 512}, hidden2_{512, 512}, output_{512, 10};
  Dropout dropout_{0.2f};
};

}  // namespace rw
