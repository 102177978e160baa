// LSTM and GRU with PyTorch's gates, parameter names ("weight_ih_l0_reverse") and initial values.
// All sequences of a batch have one length; the caller masks what lies beyond the end of shorter
// ones.
#pragma once

#include <vector>

#include "../ops/ops.h"
#include "module.h"

namespace rw {

// The options of an LSTM or GRU.
struct RecurrentOptions {
  int layers = 1;              // on top of each other
  bool bias = true;            // bias_ih and bias_hh
  bool batch_first = false;    // x and y are [N, T, ...] instead of [T, N, ...]
  bool bidirectional = false;  // a second cell per layer goes backward; outputs are joined
  float dropout = 0;           // of the layers' outputs but the last one's, in training
};

// Shared by LSTM and GRU: the parameters, and the walk through layers and directions.
class Recurrent : public Module {
 public:
  // One layer and direction.
  struct Cell {
    Tensor weight_ih;         // [gates H, in]
    Tensor weight_hh;         // [gates H, H]
    Tensor bias_ih, bias_hh;  // [gates H], or undefined
    bool reverse = false;     // from the last step to the first
  };

  const std::vector<Cell>& cells() const { return cells_; }  // layer by layer, forward first

 protected:
  // `gates` per cell are 4 for an LSTM and 3 for a GRU. ValueError for sizes that are not positive.
  Recurrent(int64_t gates, int64_t input, int64_t hidden, const RecurrentOptions& options);

  // `run`(i, gates [T, N, gates H]) gives the output [T, N, H] of cell i. Returns the last layer's.
  template <class F>
  Tensor walk(const Tensor& x, F&& run);
  // Row i of a state [layers * directions, N, H], or zeros of `dtype` if it is undefined.
  Tensor initial_state(const Tensor& state, size_t i, const Tensor& gates, DType dtype) const;
  // The output of cell i's last step.
  Tensor last_output(const Tensor& y, size_t i) const;

 private:
  Cell make_cell(int64_t gates, int64_t input, const std::string& suffix);

  int64_t hidden_;
  RecurrentOptions options_;
  std::vector<Cell> cells_;
};

// x [T, N, input] -> y [T, N, directions * H], H = `hidden` (Hochreiter and Schmidhuber 1997).
// ShapeError for another rank, and for a state of other sizes.
class LSTM : public Recurrent {
 public:
  // `h` and `c` [layers * directions, N, H]; if undefined at the start, zeros. c is f32 whatever
  // the dtype of h.
  struct State {
    Tensor h, c;
  };
  // The result of forward() from a state.
  struct Result {
    Tensor y;     // [T, N, directions * H]
    State state;  // after the last step
  };

  LSTM(int64_t input, int64_t hidden, const RecurrentOptions& options = {});
  Tensor forward(Tensor x) override { return forward(x, State{}).y; }
  // Starts from a state, for sequences that continue.
  Result forward(const Tensor& x, const State& initial);
};

// As LSTM, without the state c (Cho et al. 2014).
class GRU : public Recurrent {
 public:
  // The result of forward() from a state.
  struct Result {
    Tensor y;  // [T, N, directions * H]
    Tensor h;  // [layers * directions, N, H], after the last step
  };

  GRU(int64_t input, int64_t hidden, const RecurrentOptions& options = {});
  Tensor forward(Tensor x) override { return forward(x, Tensor()).y; }
  Result forward(const Tensor& x, const Tensor& initial);  // undefined: zeros
};

}  // namespace rw
