#include "nn/recurrent.h"

#include <cmath>

#include "nn/init.h"

namespace rw {

Recurrent::Recurrent(int64_t gates, int64_t input, int64_t hidden, const RecurrentOptions& options)
    : hidden_(hidden), options_(options) {
  check(input > 0 && hidden > 0 && options.layers > 0, "recurrent",
        "input, hidden and layers must be positive, got {}, {} and {}", input, hidden,
        options.layers);
  check(options.dropout >= 0 && options.dropout < 1, "recurrent",
        "the dropout must be in [0, 1), got {}", options.dropout);
  const int directions = options.bidirectional ? 2 : 1;
  for (int layer = 0; layer < options.layers; ++layer)
    for (int direction = 0; direction < directions; ++direction) {
      const int64_t in = layer == 0 ? input : directions * hidden;
      const char* ending = direction == 1 ? "_reverse" : "";
      cells_.push_back(make_cell(gates, in, fmt::format("_l{}{}", layer, ending)));
      cells_.back().reverse = direction == 1;
    }
}

Recurrent::Cell Recurrent::make_cell(int64_t gates, int64_t input, const std::string& suffix) {
  Cell cell;
  cell.weight_ih = register_parameter("weight_ih" + suffix, {gates * hidden_, input});
  cell.weight_hh = register_parameter("weight_hh" + suffix, {gates * hidden_, hidden_});
  if (options_.bias) {
    cell.bias_ih = register_parameter("bias_ih" + suffix, {gates * hidden_});
    cell.bias_hh = register_parameter("bias_hh" + suffix, {gates * hidden_});
  }
  const float bound = 1 / std::sqrt(static_cast<float>(hidden_));
  for (const Tensor& t : {cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh})
    if (t) init::uniform_(t, -bound, bound);
  return cell;
}

template <class F>
Tensor Recurrent::walk(const Tensor& x, F&& run) {
  check<ShapeError>(x.rank() == 3, "recurrent",
                    "needs x [T, N, in] (batch_first: [N, T, in]), got {}", x);
  Tensor y = options_.batch_first ? transpose(x, 0, 1) : x;
  const size_t directions = options_.bidirectional ? 2 : 1;
  for (size_t i = 0; i < cells_.size(); i += directions) {
    if (i > 0 && is_training() && options_.dropout > 0) y = dropout(std::move(y), options_.dropout);
    std::vector<Tensor> outputs;
    for (size_t k = i; k < i + directions; ++k)
      outputs.push_back(run(k, linear(y, cells_[k].weight_ih, cells_[k].bias_ih)));
    y = directions == 1 ? std::move(outputs[0]) : concat(std::move(outputs), -1);
  }
  if (options_.batch_first) y = transpose(std::move(y), 0, 1);
  return y;
}

Tensor Recurrent::initial_state(const Tensor& state, size_t i, const Tensor& gates,
                                DType dtype) const {
  const Shape shape = {gates.shape()[1], hidden_};
  if (!state.defined()) return full(shape, 0, dtype, gates.device().shared_from_this());
  check<ShapeError>(state.shape() == Shape{static_cast<int64_t>(cells_.size()), shape[0], hidden_},
                    "recurrent", "the state must be [{}, {}, {}], got {}", cells_.size(), shape[0],
                    hidden_, state);
  return cast(select(state, 0, static_cast<int64_t>(i)), dtype);
}

Tensor Recurrent::last_output(const Tensor& y, size_t i) const {
  return select(y, 0, cells_[i].reverse ? 0 : -1);
}

LSTM::LSTM(int64_t input, int64_t hidden, const RecurrentOptions& options)
    : Recurrent(4, input, hidden, options) {}

LSTM::Result LSTM::forward(const Tensor& x, const State& initial) {
  std::vector<Tensor> h, c;
  Tensor y = walk(x, [&](size_t i, Tensor gates) {
    const Cell& cell = cells()[i];
    Tensor h0 = initial_state(initial.h, i, gates, gates.dtype());
    Tensor c0 = initial_state(initial.c, i, gates, DType::f32);
    LstmResult result = lstm(std::move(gates), cell.weight_hh, cell.bias_hh, std::move(h0),
                             std::move(c0), cell.reverse);
    h.push_back(last_output(result.y, i));
    c.push_back(std::move(result.c));
    return std::move(result.y);
  });
  return {std::move(y), {stack(std::move(h), 0), stack(std::move(c), 0)}};
}

GRU::GRU(int64_t input, int64_t hidden, const RecurrentOptions& options)
    : Recurrent(3, input, hidden, options) {}

GRU::Result GRU::forward(const Tensor& x, const Tensor& initial) {
  std::vector<Tensor> h;
  Tensor y = walk(x, [&](size_t i, Tensor gates) {
    const Cell& cell = cells()[i];
    Tensor h0 = initial_state(initial, i, gates, gates.dtype());
    Tensor out = gru(std::move(gates), cell.weight_hh, cell.bias_hh, std::move(h0), cell.reverse);
    h.push_back(last_output(out, i));
    return out;
  });
  return {std::move(y), stack(std::move(h), 0)};
}

}  // namespace rw
