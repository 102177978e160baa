// The common part of the files of rows. A family's rows are a function add_FAMILY(Table&) in a file
// op_cases_FAMILY.cpp; it is declared here and called by op_cases().
#pragma once

#include <fmt/format.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "op_cases.h"

namespace rw::test {

// ---- inputs
inline Input x(const Shape& shape, float low = -2, float high = 2) {
  return {shape, low, high};
}
inline Input constant(const Shape& shape, float low = -2, float high = 2) {
  return {shape, low, high, DType::f32, false};
}
inline Input learned(const Shape& shape, float low = 0.5f, float high = 1.5f) {
  return {shape, low, high, DType::f32, true, true};
}
inline Input statistic(const Shape& shape, float low, float high) {
  return {shape, low, high, DType::f32, false, true};
}
inline Input index(const Shape& shape, int count) {
  return {shape, 0, static_cast<float>(count), DType::i32, false};
}
inline Input mask(const Shape& shape) {
  return {shape, 0, 2, DType::u8, false};
}

class Table {
 public:
  // `run` takes the inputs and returns a tensor or several.
  template <class F>
  OpCase& row(std::string name, std::vector<Input> inputs, F run) {
    OpCase c{.name = std::move(name), .inputs = std::move(inputs)};
    if constexpr (std::is_same_v<std::invoke_result_t<F, const Tensors&>, Tensor>)
      c.run = [run](const Tensors& in) { return Tensors{run(in)}; };
    else
      c.run = run;
    rows_.push_back(std::move(c));
    return rows_.back();
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

void add_blocks(Table& t);
void add_indexing(Table& t);
void add_network(Table& t);
void add_numeric(Table& t);
void add_sequence(Table& t);
void add_attention(Table& t);
void add_losses(Table& t);
void add_transformer(Table& t);
void add_vision(Table& t);

}  // namespace rw::test
