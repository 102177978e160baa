// Shows the parts of a model and the bytes that a training step with it keeps, op by op.
//   std::cout << summary(model, zeros({8, 32, 32, 3})).str();
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "module.h"

namespace rw {

// One op of the forward pass, with the shape and dtype of its result.
struct SummaryRow {
  std::string layer;  // the module whose parameters it reads, "layer1.0.conv1"; empty: none
  std::string op;     // its name
  Shape output;       // of the first result
  DType dtype = DType::f32;
  int64_t parameters = 0;    // elements of those that it is the first to read
  double flops = 0;          // of the op, forward
  uint64_t activations = 0;  // bytes of the results, without views
  uint64_t kept = 0;         // bytes of these that gradients read
};

// A model, row by row.
struct Summary {
  std::vector<SummaryRow> rows;  // in order
  int64_t parameters = 0;        // of the model, elements; not all must have been read
  uint64_t input_kept = 0;       // bytes from outside that gradients read, without parameters

  double flops() const;          // of the forward pass
  uint64_t activations() const;  // bytes
  uint64_t kept() const;         // bytes, without input_kept
  std::string str() const;       // a table for people
  // Joins the rows of one layer: names are cut after `depth` parts, and ops that belong to no layer
  // count to the layer before them.
  Summary folded(int depth) const;
};

// Runs and records model.forward(input) as it is (train() or eval(), on the input's device).
// ValueError from models with other inputs, which need the second form.
Summary summary(Module& model, const Tensor& input);
// Runs `forward`, which calls the model.
Summary summary(const Module& model, const std::function<void()>& forward);

}  // namespace rw
