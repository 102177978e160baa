// The model of the mnist program: 784-512-512-10 with dropout.
#pragma once

#include <memory>
#include <utility>

#include "../../nn/layers.h"
#include "../../nn/sequential.h"
#include "../../ops/ops.h"

namespace rw {

inline std::unique_ptr<Sequential> mnist_mlp() {
  auto model = std::make_unique<Sequential>();
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{784, 512}, {512, 512}}) {
    model->emplace<Linear>(in, out);
    model->append([](Tensor x) { return relu(std::move(x)); });
    model->emplace<Dropout>(0.2f);
  }
  model->emplace<Linear>(512, 10);
  return model;
}

}  // namespace rw
