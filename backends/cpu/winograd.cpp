#include "backends/cpu/winograd.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "backends/cpu/halves.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/winograd_call.h"
#include "backends/cpu/work.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using kernels::Conv2dParams;

// The work has about so many pieces, if there are tiles enough.
constexpr int64_t wanted_pieces = 16;

// The convolution that a call computes: the gradient of x is one of dy with turned weights.
Winograd winograd_of(const KernelCall& call) {
  const auto p = call.params_as<Conv2dParams>();
  Winograd w{};
  w.images = p.batch;
  w.in_h = p.in_h, w.in_w = p.in_w, w.in_c = p.in_c;
  w.out_h = p.out_h, w.out_w = p.out_w, w.out_c = p.out_c;
  w.pad_h = p.pad_h, w.pad_w = p.pad_w;
  if (call.kernel == "conv2d_dgrad") {
    std::swap(w.in_h, w.out_h), std::swap(w.in_w, w.out_w), std::swap(w.in_c, w.out_c);
    w.pad_h = 2 - w.pad_h, w.pad_w = 2 - w.pad_w;
    w.is_turned = true;
  }
  w.tiles = w.images * divide_up(w.out_h, 2) * divide_up(w.out_w, 2);
  return w;
}

class PreparedWinograd : public PreparedCall {
 protected:
  explicit PreparedWinograd(const KernelCall& call)
      : w_(winograd_of(call)), loops_(*levels().front().winograd) {}

  static std::byte* place(const KernelCall& call, const Memory& memory, size_t i) {
    return memory.bindings[i] +
           uint64_t{call.params_as<Conv2dParams>().offset[i]} * size_of(call.bindings[i].dtype);
  }
  static WinogradImages images(const KernelCall& call, const Memory& memory, size_t i) {
    return {place(call, memory, i), call.bindings[i].dtype};
  }
  static int64_t groups(int64_t channels) { return divide_up(channels, Winograd::width); }

  Winograd w_;
  const WinogradLoops& loops_;
};

// conv2d and conv2d_dgrad: a piece is some channels of some tiles.
class WinogradForward final : public PreparedWinograd {
 public:
  explicit WinogradForward(const KernelCall& call) : PreparedWinograd(call) {
    const int64_t most = divide_up(w_.tiles * groups(w_.out_c), wanted_pieces);
    w_.per_step = most <= 12 ? 12 : 24;
    if (call.bindings[1].dtype != DType::f32) floats_ = scratch(weights());
    transformed_ = scratch(weights() / 9 * 16);
    const int64_t floats = w_.width + std::min(w_.in_c, w_.depth) + w_.gap;
    scratch_ = slot_scratch(static_cast<uint64_t>(16 * w_.per_step * floats));
    place_slots(pieces());
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    const std::byte* const stored = place(call, memory, 1);
    const float* w = reinterpret_cast<const float*>(stored);
    if (floats_) {
      all_to_floats(stored, call.bindings[1].dtype, static_cast<int64_t>(weights()),
                    floats(memory, *floats_));
      w = floats(memory, *floats_);
    }
    float* const transformed = floats(memory, transformed_);
    parallel_for(divide_up(w_.out_c, Winograd::weights_at_once),
                 [&](int64_t i) { loops_.weights(w_, w, i, transformed); });
    for_pieces(pieces(), [&](int64_t i) {
      loops_.images(w_, images(call, memory, 0), transformed, i, floats_of_slot(memory, scratch_),
                    place(call, memory, 2), call.bindings[2].dtype);
    });
  }

 private:
  uint64_t weights() const { return static_cast<uint64_t>(9 * w_.in_c * w_.out_c); }
  int64_t pieces() const { return divide_up(w_.tiles, w_.per_step) * groups(w_.out_c); }

  std::optional<uint64_t> floats_;
  uint64_t transformed_, scratch_;
};

// conv2d_wgrad: a piece is the gradient of some weights by the tiles of one part. Parts are added
// in order.
class WinogradGradient final : public PreparedWinograd {
 public:
  explicit WinogradGradient(const KernelCall& call) : PreparedWinograd(call) {
    const int64_t blocks = groups(w_.in_c) * groups(w_.out_c);
    w_.per_step = 24;
    const int64_t steps = divide_up(w_.tiles, w_.per_step);
    parts_ = std::clamp<int64_t>(wanted_pieces / blocks, 1, divide_up(steps, 2));
    w_.per_part = divide_up(steps, parts_) * w_.per_step;
    parts_ = divide_up(w_.tiles, w_.per_part);
    pieces_ = parts_ * blocks;
    if (parts_ > 1) sums_ = scratch(static_cast<uint64_t>(parts_ * weights()));
    const int64_t lines = w_.width * w_.width + 2 * w_.per_step * (w_.width + w_.gap);
    scratch_ = slot_scratch(static_cast<uint64_t>(16 * lines));
    place_slots(pieces_);
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* const dw = reinterpret_cast<float*>(place(call, memory, 2));
    float* const made = parts_ > 1 ? floats(memory, sums_) : dw;
    for_pieces(pieces_, [&](int64_t i) {
      loops_.gradient(w_, images(call, memory, 0), images(call, memory, 1), i,
                      floats_of_slot(memory, scratch_), made);
    });
    if (parts_ == 1) return;
    constexpr int64_t chunk = 1 << 12;
    parallel_for(divide_up(weights(), chunk), [&](int64_t i) {
      const int64_t begin = i * chunk, end = std::min(begin + chunk, weights());
      std::copy(made + begin, made + end, dw + begin);
      for (int64_t part = 1; part < parts_; ++part)
        for (int64_t k = begin; k < end; ++k) dw[k] += made[part * weights() + k];
    });
  }

 private:
  int64_t weights() const { return 9 * w_.in_c * w_.out_c; }

  int64_t parts_, pieces_;
  uint64_t sums_ = 0, scratch_;
};

bool has_winograd_form(const KernelCall& call) {
  const auto p = call.params_as<Conv2dParams>();
  const auto all_are = [](uint32_t value, std::initializer_list<uint32_t> of) {
    return std::ranges::all_of(of, [&](uint32_t x) { return x == value; });
  };
  return all_are(3, {p.kernel_h, p.kernel_w}) &&
         all_are(1, {p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups}) &&
         all_are(0, {p.in_c % 16, p.out_c % 16}) && p.in_c > 0 && p.out_c > 0 &&
         winograd_of(call).tiles > 0;
}

}  // namespace

std::shared_ptr<const PreparedCall> prepare_winograd(const KernelCall& call) {
  if (!has_winograd_form(call) || levels().empty()) return nullptr;
  if (call.kernel == "conv2d_wgrad") return std::make_shared<WinogradGradient>(call);
  return std::make_shared<WinogradForward>(call);
}

}  // namespace rw::cpu
