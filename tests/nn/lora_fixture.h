// A small model for tests of adapters, and the forms that these have.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "../../core/tensor/quantize.h"
#include "../../nn/adapters/lora.h"
#include "../fixtures/tape_fixture.h"

namespace rw::test {

// Two linear layers, one of them without a bias, and a head.
class TwoLayers : public Module {
 public:
  explicit TwoLayers(int64_t size = 6, int64_t inner = 4)
      : first(size, inner), second(inner, size, false), head(size, 3) {
    register_module("block.first_proj", first);
    register_module("block.second_proj", second);
    register_module("head", head);
  }
  Tensor forward(Tensor x) override { return head(silu(second(silu(first(std::move(x)))))); }

  Linear first, second, head;
};

// A weight in 8 bits, in the layer's place.
class PackedLayer : public Module {
 public:
  explicit PackedLayer(const Linear& layer)
      : weight_(quantize_blocks(layer.weight.detach())), bias_(layer.bias) {}
  Tensor forward(Tensor x) override { return linear(std::move(x), dense(), bias_); }
  Tensor dense() const { return dequantize_blocks(weight_, DType::f32); }

 private:
  QuantizedBlocks weight_;
  Tensor bias_;
};

inline void check_lora_values(const std::vector<float>& a, const std::vector<float>& b,
                              double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(a[i] == doctest::Approx(b[i]).epsilon(tolerance).scale(1));
}

inline const LoraOptions every_form[] = {
    {.rank = 2, .alpha = 3},
    {.rank = 2, .alpha = 3, .rank_stabilized = true},
    {.rank = 2, .alpha = 3, .dora = true},
    {.rank = 2, .alpha = 3, .rank_stabilized = true, .dora = true}};

}  // namespace rw::test
