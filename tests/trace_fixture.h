// A made-up trace of training steps: layers with checkpoint segments, a replay in backward, an
// update.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../core/memory/memory_trace.h"

namespace rw::test {

class TraceMaker {
 public:
  // Segments are four layers long.
  TraceMaker(int layers, int steps, bool timed) : layers_(layers), timed_(timed) {
    trace_.device = "Example device <made up> & \"quoted\"";
    holes_.push_back({0, 0, block_bytes});
    trace_.block_bytes.push_back(block_bytes);
    make_persistent();
    for (int s = 0; s < steps; ++s) step();
    trace_.end = clock_ + 1;
    trace_.limit = trace_.block_bytes.size() * block_bytes * 6 / 5;
  }
  MemoryTrace trace() && { return std::move(trace_); }

 private:
  static constexpr uint64_t block_bytes = uint64_t{40} << 20;
  static constexpr uint64_t unit = 256;
  struct Hole {
    uint32_t block;
    uint64_t offset, size;
  };

  size_t allocate(const std::string& op, Shape shape, DType dtype, Purpose purpose,
                  bool before = false) {
    TracedTensor t{
        .id = ++ids_, .shape = shape, .dtype = dtype, .purpose = purpose, .phase = phase_};
    t.op = op;
    t.segment = segment_;
    t.bytes = (static_cast<uint64_t>(shape.numel()) * size_of(dtype) + unit - 1) / unit * unit;
    t.begin = before ? 0 : ++clock_;
    auto hole = holes_.begin();
    while (hole != holes_.end() && hole->size < t.bytes) ++hole;
    if (hole == holes_.end()) {
      trace_.block_bytes.push_back(std::max(block_bytes, t.bytes));
      const auto block = static_cast<uint32_t>(trace_.block_bytes.size() - 1);
      hole = holes_.insert(holes_.end(), {block, 0, trace_.block_bytes.back()});
    }
    t.block = hole->block;
    t.offset = hole->offset;
    hole->offset += t.bytes;
    hole->size -= t.bytes;
    trace_.tensors.push_back(t);
    return trace_.tensors.size() - 1;
  }

  void free(size_t index) {
    TracedTensor& t = trace_.tensors[index];
    t.end = ++clock_;
    Hole freed{t.block, t.offset, t.bytes};
    for (auto hole = holes_.begin(); hole != holes_.end();) {
      const bool joins = hole->block == freed.block && (hole->offset + hole->size == freed.offset ||
                                                        freed.offset + freed.size == hole->offset);
      if (joins) {
        freed.offset = std::min(freed.offset, hole->offset);
        freed.size += hole->size;
      }
      hole = joins ? holes_.erase(hole) : hole + 1;
    }
    holes_.insert(holes_.begin(), freed);
    std::sort(holes_.begin(), holes_.end(), [](const Hole& a, const Hole& b) {
      return a.block != b.block ? a.block < b.block : a.offset < b.offset;
    });
  }

  void call(const std::string& op, const std::string& kernel, double us, uint64_t bytes) {
    const uint64_t number = trace_.calls.size();
    trace_.calls.push_back({.at = ++clock_,
                            .op = op,
                            .kernel = kernel,
                            .phase = phase_,
                            .segment = segment_,
                            .flops = us * 3e6,
                            .bytes = bytes,
                            .host_us = timed_ ? host_us_ : 0});
    host_us_ += 6.5;
    if (timed_) trace_.times.push_back({number, kernel, device_us_, device_us_ + us});
    device_us_ += us + 1;
  }

  Shape activation(int layer) const {
    const int64_t shrink = 1 + 3 * layer / layers_;
    return {8, 64 / shrink, 64 / shrink, 32 * shrink};
  }

  void make_persistent() {
    for (int l = 0; l < layers_; ++l)
      for (const Purpose purpose : {Purpose::parameter, Purpose::optimizer, Purpose::gradient})
        allocate(fmt::format("layer{}.weight", l), {32 * (1 + 3 * l / layers_), 3, 3, 96},
                 DType::f32, purpose, true);
  }

  size_t layer_forward(int layer) {
    const size_t scratch = allocate("conv2d", {1 << 18}, DType::f32, Purpose::workspace);
    const size_t out = allocate("conv2d", activation(layer), DType::f16, Purpose::activation);
    call("conv2d", "conv_tiled", 40 + layer % 7 * 9, trace_.tensors[out].bytes * 3);
    free(scratch);
    const size_t relu = allocate("relu", activation(layer), DType::f16, Purpose::activation);
    call("relu", "unary", 9, trace_.tensors[out].bytes * 2);
    free(out);
    return relu;
  }

  void step() {
    phase_ = Phase::forward;
    const size_t batch = allocate("copy", {8, 3, 128, 128}, DType::f32, Purpose::data);
    std::vector<size_t> kept(static_cast<size_t>(layers_));
    for (int l = 0; l < layers_; ++l) {
      segment_ = l / 4;
      kept[static_cast<size_t>(l)] = layer_forward(l);
      if (l % 4 > 1) free(kept[static_cast<size_t>(l) - 1]);  // dropped by the segment
    }
    size_t gradient =
        allocate("cross_entropy", activation(layers_ - 1), DType::f16, Purpose::gradient);
    for (int l = layers_ - 1; l >= 0; --l) gradient = layer_backward(l, kept, gradient);
    free(gradient);
    free(batch);
    phase_ = Phase::update;
    segment_ = -1;
    for (int l = 0; l < layers_; l += 8) call("adamw", "adam", 30, 1 << 20);
    trace_.steps.push_back(++clock_);
  }

  size_t layer_backward(int l, std::vector<size_t>& kept, size_t gradient) {
    segment_ = l / 4;
    if (l % 4 == 3 || (l == layers_ - 1 && l % 4 > 1)) {  // bring the dropped ones back
      phase_ = Phase::replay;
      for (int r = l / 4 * 4 + 1; r < l; ++r) kept[static_cast<size_t>(r)] = layer_forward(r);
    }
    phase_ = Phase::backward;
    const size_t scratch = allocate("conv2d_grad", {1 << 18}, DType::f32, Purpose::workspace);
    const size_t next = allocate("conv2d_grad", activation(l), DType::f16, Purpose::gradient);
    call("conv2d_grad", "conv_wgrad_tiled", 70, trace_.tensors[next].bytes * 4);
    free(scratch);
    free(gradient);
    free(kept[static_cast<size_t>(l)]);
    return next;
  }

  MemoryTrace trace_;
  std::vector<Hole> holes_;
  Phase phase_ = Phase::forward;
  int segment_ = -1;
  int layers_;
  bool timed_;
  uint64_t clock_ = 0, ids_ = 0;
  double host_us_ = 5, device_us_ = 0;
};

// A few thousand events by default; `timed`: with host and kernel times.
inline MemoryTrace training_trace(int layers = 24, int steps = 3, bool timed = true) {
  return TraceMaker(layers, steps, timed).trace();
}

}  // namespace rw::test
