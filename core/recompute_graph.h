// A recorded forward pass without its tensors: what the recompute planner knows.
#pragma once

#include <cstdint>
#include <vector>

namespace rw {

// A value of the forward pass. Views of one storage are one value.
struct GraphValue {
  uint64_t bytes = 0;
  int32_t record =
      -1;             // that makes it; -1: external (parameter, data), always alive, costs nothing
  uint32_t slot = 0;  // which of the record's outputs it is
};

// One recorded op. A view makes no value: it has no outputs.
struct GraphRecord {
  std::vector<uint32_t> inputs, outputs;  // value indices
  std::vector<uint32_t> saved;            // values that its vjp reads, of its inputs and outputs
  double cost = 0;                        // of running it forward: FLOPs or seconds
  uint64_t workspace = 0;                 // transient bytes while it runs
  bool reached = true;                    // its vjp runs
  uint32_t taken = 0;  // so many of `saved`, the first, go before its gradients are made
};

// Records in forward order: a record reads only external values and those of earlier records.
struct RecomputeGraph {
  std::vector<GraphValue> values;
  std::vector<GraphRecord> records;
};

}  // namespace rw
