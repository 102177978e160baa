// Synthetic forward passes for the tests of the recompute planner.
#pragma once

#include <functional>
#include <random>

#include "../core/recompute/graph.h"

namespace rw::test {

// Appends records to a graph; every call returns the index of the value that it makes.
class GraphBuilder {
 public:
  struct Options {
    bool saves_inputs = false, saves_output = false;
    double cost = 0;
    uint64_t workspace = 0;
  };

  uint32_t add(std::vector<uint32_t> inputs, uint64_t bytes, const Options& options) {
    const auto value = static_cast<uint32_t>(graph.values.size());
    graph.values.push_back({bytes, static_cast<int32_t>(graph.records.size())});
    GraphRecord record{std::move(inputs), {value}, {}, options.cost, options.workspace, true};
    if (options.saves_inputs) record.saved = record.inputs;
    if (options.saves_output) record.saved.push_back(value);
    graph.records.push_back(std::move(record));
    return value;
  }
  uint32_t external(uint64_t bytes) {
    graph.values.push_back({bytes, -1});
    return static_cast<uint32_t>(graph.values.size()) - 1;
  }
  // Costs in multiples of the output's bytes, so that light ops are light everywhere.
  uint32_t relu(uint32_t x) { return add({x}, bytes(x), {.saves_output = true, .cost = light(x)}); }
  uint32_t matmul(uint32_t x, uint64_t out_bytes, double cost) {
    return add({x, external(1)}, out_bytes, {.saves_inputs = true, .cost = cost});
  }
  uint32_t sum(uint32_t a, uint32_t b) { return add({a, b}, bytes(a), {.cost = light(a)}); }
  uint32_t norm(uint32_t x) {
    return add({x}, bytes(x), {.saves_inputs = true, .cost = 2 * light(x)});
  }
  uint64_t bytes(uint32_t v) const { return graph.values[v].bytes; }
  double light(uint32_t v) const { return 1e-11 * static_cast<double>(bytes(v)); }

  RecomputeGraph graph;
};

// f(f(f(x))): every record saves its output.
inline RecomputeGraph uniform_chain(uint32_t records, uint64_t bytes) {
  GraphBuilder b;
  uint32_t x = b.external(bytes);
  for (uint32_t i = 0; i < records; ++i) x = b.add({x}, bytes, {.saves_output = true, .cost = 1});
  return std::move(b.graph);
}

// Records with random bytes, costs and savings.
inline RecomputeGraph random_chain(uint32_t records, std::mt19937& random) {
  GraphBuilder b;
  uint32_t x = b.external(100);
  for (uint32_t i = 0; i < records; ++i) {
    const bool saves_input = random() % 2;
    x = b.add({x}, 10 + random() % 90,
              {.saves_inputs = saves_input,
               .saves_output = !saves_input || random() % 3 == 0,
               .cost = 1.0 + random() % 20,
               .workspace = random() % 20});
  }
  return std::move(b.graph);
}

// CIFAR ResNet v2 of depth 6 blocks + 2: relu -> conv -> relu -> conv -> add, cost 1 per conv.
inline RecomputeGraph resnet(uint32_t blocks, uint64_t batch, bool batch_norm) {
  GraphBuilder b;
  const uint64_t stage_bytes[] = {batch * 16 * 32 * 32 * 4, batch * 32 * 16 * 16 * 4,
                                  batch * 64 * 8 * 8 * 4};
  uint32_t x = b.matmul(b.external(1), stage_bytes[0], 0.2);
  for (uint64_t bytes : stage_bytes)
    for (uint32_t block = 0; block < blocks; ++block) {
      const auto half = [&](uint32_t h, uint64_t out) {
        if (batch_norm) h = b.norm(h);
        return b.matmul(b.relu(h), out, 1);
      };
      const uint32_t h = half(half(x, bytes), bytes);
      const uint32_t shortcut = b.bytes(x) == bytes ? x : b.matmul(x, bytes, 0.1);
      x = b.sum(h, shortcut);
    }
  x = b.add({b.relu(x)}, 1280 * 64 * 4, {.cost = 1e-3});  // pooled
  b.add({b.matmul(x, 1280 * 10 * 4, 1e-3)}, 4, {.saves_inputs = true});
  return std::move(b.graph);
}

// Encoder layers with fused attention; `unit` is bytes of one [tokens, hidden] tensor.
inline RecomputeGraph bert(uint32_t layers, uint64_t unit) {
  GraphBuilder b;
  const auto dropout = [&](uint32_t x) {
    return b.add({x}, b.bytes(x), {.cost = b.light(x)});  // the mask is recomputed from a counter
  };
  uint32_t x = b.add({b.external(1)}, unit, {.cost = 1e-3});
  for (uint32_t i = 0; i < layers; ++i) {
    const uint32_t q = b.matmul(x, unit, 1), k = b.matmul(x, unit, 1), v = b.matmul(x, unit, 1);
    const uint32_t scores = b.add({q, k}, 8 * unit, {.saves_inputs = true, .cost = 0.17});
    const uint32_t softmax = b.add({scores}, 8 * unit, {.saves_output = true, .cost = 0.01});
    const uint32_t context =
        b.add({dropout(softmax), v}, unit, {.saves_inputs = true, .cost = 0.17});
    x = b.norm(b.sum(dropout(b.matmul(context, unit, 1)), x));
    const uint32_t wide = b.matmul(x, 4 * unit, 4);
    const uint32_t gelu = b.add({wide}, 4 * unit, {.saves_inputs = true, .cost = 0.01});
    x = b.norm(b.sum(dropout(b.matmul(gelu, unit, 4)), x));
  }
  b.add({x}, 4, {.saves_inputs = true});
  return std::move(b.graph);
}

// Levels of an encoder, each half the bytes, and a decoder that reads its values again.
inline RecomputeGraph unet(uint32_t levels, uint32_t convs, uint64_t bytes) {
  GraphBuilder b;
  std::vector<uint32_t> skips;
  uint32_t x = b.external(bytes);
  const auto level = [&](uint64_t size) {
    for (uint32_t i = 0; i < convs; ++i) x = b.relu(b.matmul(x, size, 1));
  };
  for (uint32_t l = 0; l < levels; ++l, bytes /= 2) {
    level(bytes);
    skips.push_back(x);
    x = b.add({x}, bytes / 4, {.cost = 1e-3});  // pooled
  }
  level(bytes);
  for (uint32_t l = levels; l-- > 0;) {
    bytes *= 2;
    x = b.add({b.matmul(x, bytes, 0.5), skips[l]}, 2 * bytes, {.cost = 1e-3});  // concat
    level(bytes);
  }
  b.add({x}, 4, {.saves_inputs = true});
  return std::move(b.graph);
}

// Any shape: several inputs and outputs, unread values, records without a vjp.
inline RecomputeGraph random_dag(uint32_t records, std::mt19937& random) {
  RecomputeGraph graph;
  for (int i = 0; i < 3; ++i) graph.values.push_back({1 + random() % 100, -1});
  for (uint32_t i = 0; i < records; ++i) {
    GraphRecord record;
    for (uint32_t k = random() % 4; k > 0; --k)
      record.inputs.push_back(random() % static_cast<uint32_t>(graph.values.size()));
    for (uint32_t k = 1 + random() % 2; k > 0; --k) {
      record.outputs.push_back(static_cast<uint32_t>(graph.values.size()));
      graph.values.push_back({random() % 100, static_cast<int32_t>(i)});
    }
    for (const auto* side : {&record.inputs, &record.outputs})
      for (uint32_t v : *side)
        if (random() % 2) record.saved.push_back(v);
    record.cost = random() % 10;
    record.workspace = random() % 30;
    record.reached = random() % 8 != 0;
    graph.records.push_back(std::move(record));
  }
  return graph;
}

inline double forward_cost(const RecomputeGraph& graph) {
  double sum = 0;
  for (const GraphRecord& record : graph.records) sum += record.cost;
  return sum;
}

using Segments = std::vector<RecomputePlan::Segment>;

// Calls done() for every forest of segments over records [first, last).
inline void for_each_forest(uint32_t first, uint32_t last, int32_t parent, bool whole_is_parent,
                            Segments& segments, const std::function<void()>& done) {
  if (first == last) return done();
  for_each_forest(first + 1, last, parent, false, segments, done);
  for (uint32_t end = first + 1; end <= last; ++end) {
    if (whole_is_parent && end == last) continue;  // the same segment twice
    const size_t size = segments.size();
    segments.push_back({first, end, parent});
    for_each_forest(first, end, static_cast<int32_t>(size), true, segments, [&] {
      const size_t inner = segments.size();
      for_each_forest(end, last, parent, false, segments, done);
      segments.resize(inner);
    });
    segments.resize(size);
  }
}

}  // namespace rw::test
