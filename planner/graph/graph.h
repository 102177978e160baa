// A recorded forward pass without its tensors: the input of the recompute planner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../core/base/context.h"
#include "../../core/base/error.h"
#include "plan.h"

namespace rw {

// The records in forward order: a record reads only external values and those of earlier records.
struct Graph {
  // A value of the forward pass. Views of one storage are one value.
  struct Value {
    uint64_t bytes = 0;  // of its storage, which all its views share
    // The record that makes it; -1: external (parameter, data), always alive, costs nothing.
    int32_t record = -1;
    uint32_t slot = 0;       // which of the record's outputs it is
    uint64_t quantized = 0;  // its bytes in 8 bits; 0: it is never kept so
  };

  // One recorded op. A view makes no value: it has no outputs.
  struct Record {
    std::vector<uint32_t> inputs, outputs;  // value indices
    std::vector<uint32_t> saved;            // those of its inputs and outputs that its vjp reads
    double cost = 0;                        // of running it forward: FLOPs or seconds
    uint64_t workspace = 0;                 // transient bytes while it runs
    bool reached = true;                    // its vjp runs
    // So many of `saved`, the first ones, are released before its gradients are made.
    uint32_t taken = 0;
    OpCost work = {};                    // of running it forward; `cost` is computed from it
    std::optional<double> seconds = {};  // the time on a real device, where that was measured
    bool is_heavy = false;               // Op::is_heavy
    std::string op = {};                 // Op::name
    std::string label = {};              // Record::label(): `op`, or a name by checkpoint_name()

    // The saved values that are taken, and those that are read to the end.
    std::span<const uint32_t> saved_taken() const { return std::span(saved).first(taken); }
    std::span<const uint32_t> saved_read() const { return std::span(saved).subspan(taken); }
  };

  std::vector<Value> values;
  std::vector<Record> records;
  // By record, the bytes of the gradients of leaves that its vjp and those of later records make.
  // They outlive backward. Empty if there are none.
  std::vector<uint64_t> leaf_gradients;

  // The cost of sending a byte to host memory and bringing it back; infinite where nothing is
  // gained by that.
  double offload_cost = std::numeric_limits<double>::infinity();
  uint64_t host_bytes = UINT64_MAX;  // that plans may send there

  // The cost of reading or writing a byte of the device's memory, where values are packed in 8 bits
  // and unpacked; infinite where none are.
  double byte_cost = std::numeric_limits<double>::infinity();

  // Whether something may be gained by sending values to host memory.
  bool can_offload() const {
    return host_bytes > 0 && offload_cost < std::numeric_limits<double>::infinity();
  }
  // Whether values may be kept in 8 bits.
  bool can_quantize() const { return byte_cost < std::numeric_limits<double>::infinity(); }
  bool can_quantize(uint32_t value) const { return can_quantize() && values[value].quantized > 0; }
  // Returns the cost of packing a value in 8 bits and unpacking it: both read and write all of it.
  double quantize_cost(uint32_t value) const {
    return 2 * byte_cost * static_cast<double>(values[value].bytes + values[value].quantized);
  }

  // The bytes of leaf gradients that are alive when backward has run the vjps of `record` and of
  // all records after it.
  uint64_t gradients_from(size_t record) const {
    return record < leaf_gradients.size() ? leaf_gradients[record] : 0;
  }
  // Names a value that is not external as plans do, kept from a segment's replay or from the
  // forward pass on.
  Plan::Output output(uint32_t value, int32_t replay = -1) const {
    return {static_cast<uint32_t>(values[value].record), values[value].slot, replay};
  }
  // Returns the value that a record makes in this slot. ValueError if it makes none.
  uint32_t value(const Plan::Output& output) const {
    if (output.record < records.size())
      for (const uint32_t v : records[output.record].outputs)
        if (values[v].slot == output.slot) return v;
    fail<ValueError>("recompute",
                     "what is kept must be made by a record, got output {} of record {}",
                     output.slot, output.record);
  }
  // Returns the cost of recomputing a value, per byte. It must not be external.
  double cost_per_byte(uint32_t value) const {
    const Value& v = values[value];
    return records[static_cast<size_t>(v.record)].cost /
           static_cast<double>(std::max<uint64_t>(v.bytes, 1));
  }
};

// Returns the plan with the names of the graph's ops, by which passes follow it.
inline Plan follow(const Graph& graph, Plan plan) {
  plan.signature.clear();
  for (const Graph::Record& record : graph.records) plan.signature.push_back(record.op);
  return plan;
}

}  // namespace rw
