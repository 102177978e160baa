// Convolutions by oneDNN's primitives, on one thread for each group of images: what is added up,
// and in which order, is the same for any number of threads.
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "backends/cpu/halves.h"
#include "backends/cpu/one_thread.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/work.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using dnnl::memory;
using kernels::Conv2dParams;

const dnnl::engine& engine() {
  static const dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

dnnl::primitive_attr own_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// The tensors of a convolution of so many images, as oneDNN describes them. Weights may lie in any
// way that suits it.
struct Shapes {
  memory::desc x, y, w, w_plain;
  memory::dims strides, dilations, pads;

  Shapes(const Conv2dParams& p, int64_t images) {
    const memory::data_type f32 = memory::data_type::f32;
    const auto tag = memory::format_tag::nhwc;
    x = {{images, p.in_c, p.in_h, p.in_w}, f32, tag};
    y = {{images, p.out_c, p.out_h, p.out_w}, f32, tag};
    const int64_t groups = p.groups, outputs = p.out_c / groups, inputs = p.in_c / groups;
    const memory::dims one = {p.out_c, p.in_c, p.kernel_h, p.kernel_w};
    const memory::dims several = {groups, outputs, inputs, p.kernel_h, p.kernel_w};
    const memory::dims& dims = groups > 1 ? several : one;
    w = {dims, f32, memory::format_tag::any};
    // OHWI, which no tag names where there are groups.
    const int64_t pixel = inputs, line = pixel * p.kernel_w, output = line * p.kernel_h;
    w_plain = groups > 1 ? memory::desc(dims, f32, {outputs * output, output, 1, line, pixel})
                         : memory::desc(dims, f32, {output, 1, line, pixel});
    strides = {p.stride_h, p.stride_w};
    dilations = {int64_t{p.dilation_h} - 1, int64_t{p.dilation_w} - 1};
    pads = {p.pad_h, p.pad_w};
  }
};

constexpr auto direct = dnnl::algorithm::convolution_direct;

#if DNNL_VERSION_MAJOR >= 3
auto forward_of(const Shapes& s) {
  return dnnl::convolution_forward::primitive_desc(engine(), dnnl::prop_kind::forward_training,
                                                   direct, s.x, s.w, s.y, s.strides, s.dilations,
                                                   s.pads, s.pads, own_scratchpad());
}
auto data_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_data::primitive_desc(engine(), direct, s.x, s.w, s.y, s.strides,
                                                         s.dilations, s.pads, s.pads, forward_of(s),
                                                         own_scratchpad());
}
auto weight_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_weights::primitive_desc(engine(), direct, s.x, s.w, s.y,
                                                            s.strides, s.dilations, s.pads, s.pads,
                                                            forward_of(s), own_scratchpad());
}
#else
auto forward_of(const Shapes& s) {
  return dnnl::convolution_forward::primitive_desc(
      {dnnl::prop_kind::forward_training, direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads,
       s.pads},
      own_scratchpad(), engine());
}
auto data_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_data::primitive_desc(
      {direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads, s.pads}, own_scratchpad(), engine(),
      forward_of(s));
}
auto weight_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads, s.pads}, own_scratchpad(), engine(),
      forward_of(s));
}
#endif

// Weights from one order to another, on all threads: a piece is some outputs, or groups.
class Reorder {
 public:
  Reorder(const memory::desc& from, const memory::desc& to) {
    constexpr int64_t lines = 64;  // a multiple of oneDNN's blocks
    memory::dims dims = from.dims(), begin(dims.size(), 0);
    const int64_t count = dims[0] % lines == 0 ? dims[0] / lines : 1;
    dims[0] /= count;
    for (int64_t i = 0; i < count; ++i, begin[0] += dims[0]) {
      Piece piece{from.submemory_desc(dims, begin), to.submemory_desc(dims, begin), {}};
      piece.primitive = dnnl::reorder({engine(), piece.from, engine(), piece.to});
      pieces_.push_back(std::move(piece));
    }
  }

  void run(float* from, float* to) const {
    parallel_for(static_cast<int64_t>(pieces_.size()), [&](int64_t i) {
      const OneThread here;
      const Piece& piece = pieces_[static_cast<size_t>(i)];
      memory source(piece.from, engine(), from), target(piece.to, engine(), to);
      dnnl::stream stream(engine());
      piece.primitive.execute(stream, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
      stream.wait();
    });
  }

 private:
  struct Piece {
    memory::desc from, to;
    dnnl::reorder primitive;
  };
  std::vector<Piece> pieces_;
};

// Images of a piece of work: batches are cut into about `pieces`, equal ones where they can be.
int64_t images_of(int64_t batch, int64_t pieces) {
  int64_t images = std::max<int64_t>(1, batch / pieces);
  while (batch % images != 0) --images;
  return images;
}

// What all three have in common: x, w and y in f32, as oneDNN wants them.
class ConvolutionPlan : public Plan {
 protected:
  // `at`: the bindings of x, w and y.
  ConvolutionPlan(const KernelCall& call, int64_t pieces, std::array<size_t, 3> at)
      : p_(call.params_as<Conv2dParams>()),
        images_(images_of(p_.batch, pieces)),
        shapes_(p_, images_),
        at_(at) {
    counts_ = {int64_t{p_.batch} * p_.in_h * p_.in_w * p_.in_c,
               int64_t{p_.out_c} * p_.kernel_h * p_.kernel_w * (p_.in_c / p_.groups),
               int64_t{p_.batch} * p_.out_h * p_.out_w * p_.out_c};
    for (size_t i = 0; i < 3; ++i) {
      dtypes_[i] = call.bindings[at_[i]].dtype;
      if (dtypes_[i] != DType::f32) floats_[i] = scratch(static_cast<uint64_t>(counts_[i]));
    }
  }

  int64_t pieces() const { return p_.batch / images_; }

  // Operand i (of x, w, y) as f32: where it is, or in scratch, where it `is_read` first.
  float* operand(const KernelCall& call, const Memory& memory, size_t i, bool is_read) const {
    const uint32_t offset = call.params_as<Conv2dParams>().offset[at_[i]];
    if (dtypes_[i] == DType::f32) return memory.at<float>(at_[i], offset);
    float* to = floats(memory, floats_[i]);
    if (is_read)
      to_floats(memory.bindings[at_[i]] + uint64_t{offset} * size_of(dtypes_[i]), dtypes_[i],
                counts_[i], to);
    return to;
  }
  // A result that was made in scratch goes to its place.
  void store(const KernelCall& call, const Memory& memory, size_t i, const float* from) const {
    if (dtypes_[i] == DType::f32) return;
    const uint32_t offset = call.params_as<Conv2dParams>().offset[at_[i]];
    from_floats(from, counts_[i], dtypes_[i],
                memory.bindings[at_[i]] + uint64_t{offset} * size_of(dtypes_[i]));
  }

  int64_t x_step() const { return images_ * p_.in_h * p_.in_w * p_.in_c; }
  int64_t y_step() const { return images_ * p_.out_h * p_.out_w * p_.out_c; }

  Conv2dParams p_;
  int64_t images_;
  Shapes shapes_;

 private:
  std::array<size_t, 3> at_;
  std::array<int64_t, 3> counts_;
  std::array<DType, 3> dtypes_;
  std::array<uint64_t, 3> floats_{};
};

// conv2d and conv2d_dgrad: `Primitive` makes the images of a piece from weights that all read.
template <class Primitive>
class ImagesPlan final : public ConvolutionPlan {
 public:
  using Description = typename Primitive::primitive_desc;

  ImagesPlan(const KernelCall& call, std::array<size_t, 3> at,
             Description (*describe)(const Shapes&))
      : ConvolutionPlan(call, 16, at), description_(describe(shapes_)), primitive_(description_) {
    is_forward_ = at[2] == 2;
    is_packed_ = description_.weights_desc() != shapes_.w_plain;
    if (is_packed_) {
      packed_ = scratch(description_.weights_desc().get_size() / sizeof(float));
      pack_.emplace(shapes_.w_plain, description_.weights_desc());
    }
    scratchpad_ = description_.scratchpad_desc().get_size() / sizeof(float);
    scratchpads_ = scratch(scratchpad_ * static_cast<uint64_t>(pieces()));
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* x = operand(call, memory, 0, is_forward_);
    float* y = operand(call, memory, 2, !is_forward_);
    float* w = operand(call, memory, 1, true);
    if (is_packed_) {
      float* packed = floats(memory, packed_);
      pack_->run(w, packed);
      w = packed;
    }
    parallel_for(pieces(), [&](int64_t i) {
      const OneThread here;
      dnnl::stream stream(engine());
      const dnnl::memory of_x(shapes_.x, engine(), x + i * x_step());
      const dnnl::memory of_y(shapes_.y, engine(), y + i * y_step());
      const dnnl::memory weights(description_.weights_desc(), engine(), w);
      const dnnl::memory pad(description_.scratchpad_desc(), engine(),
                             floats(memory, scratchpads_) + static_cast<uint64_t>(i) * scratchpad_);
      primitive_.execute(stream, {{is_forward_ ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, of_x},
                                  {DNNL_ARG_WEIGHTS, weights},
                                  {is_forward_ ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, of_y},
                                  {DNNL_ARG_SCRATCHPAD, pad}});
      stream.wait();
    });
    store(call, memory, is_forward_ ? 2 : 0, is_forward_ ? y : x);
  }

 private:
  Description description_;
  Primitive primitive_;
  std::optional<Reorder> pack_;
  bool is_forward_ = true, is_packed_ = false;
  uint64_t packed_ = 0, scratchpad_ = 0, scratchpads_ = 0;
};

// conv2d_wgrad: the gradients of pieces, which are added in their order.
class WeightsPlan final : public ConvolutionPlan {
 public:
  explicit WeightsPlan(const KernelCall& call)
      : ConvolutionPlan(call, 8, {0, 2, 1}),
        description_(weight_gradient_of(shapes_)),
        primitive_(description_),
        unpack_(description_.diff_weights_desc(), shapes_.w_plain) {
    size_ = description_.diff_weights_desc().get_size() / sizeof(float);
    parts_ = scratch(size_ * static_cast<uint64_t>(pieces()));
    scratchpad_ = description_.scratchpad_desc().get_size() / sizeof(float);
    scratchpads_ = scratch(scratchpad_ * static_cast<uint64_t>(pieces()));
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* x = operand(call, memory, 0, true);
    float* dy = operand(call, memory, 2, true);
    float* parts = floats(memory, parts_);
    parallel_for(pieces(), [&](int64_t i) {
      const OneThread here;
      dnnl::stream stream(engine());
      const dnnl::memory of_x(shapes_.x, engine(), x + i * x_step());
      const dnnl::memory of_y(shapes_.y, engine(), dy + i * y_step());
      const dnnl::memory part(description_.diff_weights_desc(), engine(),
                              parts + static_cast<uint64_t>(i) * size_);
      const dnnl::memory pad(description_.scratchpad_desc(), engine(),
                             floats(memory, scratchpads_) + static_cast<uint64_t>(i) * scratchpad_);
      primitive_.execute(stream, {{DNNL_ARG_SRC, of_x},
                                  {DNNL_ARG_DIFF_WEIGHTS, part},
                                  {DNNL_ARG_DIFF_DST, of_y},
                                  {DNNL_ARG_SCRATCHPAD, pad}});
      stream.wait();
    });
    add_up(parts);
    float* dw = operand(call, memory, 1, false);
    unpack_.run(parts, dw);
  }

 private:
  // The first of the parts becomes the sum of all.
  void add_up(float* parts) const {
    constexpr int64_t piece = 1 << 14;
    const auto size = static_cast<int64_t>(size_);
    parallel_for((size + piece - 1) / piece, [&](int64_t at) {
      const int64_t begin = at * piece, end = std::min(size, begin + piece);
      for (int64_t part = 1; part < pieces(); ++part)
        for (int64_t i = begin; i < end; ++i) parts[i] += parts[part * size + i];
    });
  }

  dnnl::convolution_backward_weights::primitive_desc description_;
  dnnl::convolution_backward_weights primitive_;
  Reorder unpack_;
  uint64_t size_ = 0, parts_ = 0, scratchpad_ = 0, scratchpads_ = 0;
};

}  // namespace

std::shared_ptr<const Plan> plan_convolution(const KernelCall& call) try {
  const auto p = call.params_as<Conv2dParams>();
  if (p.batch == 0 || p.in_c == 0 || p.out_c == 0 || p.groups == 0) return nullptr;
  const OneThread here;
  if (call.kernel == "conv2d")
    return std::make_shared<ImagesPlan<dnnl::convolution_forward>>(
        call, std::array<size_t, 3>{0, 1, 2}, forward_of);
  if (call.kernel == "conv2d_dgrad")
    return std::make_shared<ImagesPlan<dnnl::convolution_backward_data>>(
        call, std::array<size_t, 3>{2, 1, 0}, data_gradient_of);
  return std::make_shared<WeightsPlan>(call);
} catch (const dnnl::error&) {
  return nullptr;  // no form of this problem
}

}  // namespace rw::cpu
