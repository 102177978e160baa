#include "backends/cpu/conv_slices.h"

#include <algorithm>
#include <array>

#include "backends/cpu/conv_shapes.h"
#include "backends/cpu/halves.h"
#include "backends/cpu/one_thread.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using dnnl::memory;
using kernels::Conv2dParams;

// Binding 0 has images that each piece reads whole: x or dy. Of the other images, a piece reads or
// makes some channels, and of the weights those that join the two. If pieces were images instead,
// each would read, or make and add, all weights, and a single image would be one piece.
class PreparedSlices final : public PreparedCall {
 public:
  static bool suits(const KernelCall& call) {
    const auto p = call.params_as<Conv2dParams>();
    const bool makes_x = call.kernel == "conv2d_dgrad";
    const int64_t whole = int64_t{p.batch} * (makes_x ? int64_t{p.out_h} * p.out_w * p.out_c
                                                      : int64_t{p.in_h} * p.in_w * p.in_c);
    const int64_t channels = makes_x ? p.in_c : p.out_c, width = width_of(channels);
    // In conv2d, all weights are reordered once and then only read.
    const bool is_better = whole < weights_of(p) && call.kernel != "conv2d";
    const bool is_one_image = p.batch == 1 && channels > width;
    return p.groups == 1 && (is_better || is_one_image) && channels % width == 0;
  }

  explicit PreparedSlices(const KernelCall& call)
      : p_(call.params_as<Conv2dParams>()), makes_weights_(call.kernel == "conv2d_wgrad") {
    const bool makes_x = call.kernel == "conv2d_dgrad";
    channels_ = makes_x ? p_.in_c : p_.out_c;
    width_ = width_of(channels_);
    Conv2dParams sliced = p_;
    (makes_x ? sliced.in_c : sliced.out_c) = static_cast<uint32_t>(width_);
    const Shapes shapes(sliced, p_.batch);
    // A slice of the inputs is not contiguous in the whole weights.
    const int64_t pixel = p_.in_c, line = pixel * p_.kernel_w, output = line * p_.kernel_h;
    plain_ = {dims_of(shapes.w_plain), memory::data_type::f32, {output, 1, line, pixel}};
    weights_step_ = makes_x ? width_ : width_ * output;
    whole_ = makes_x ? shapes.y : shapes.x;
    slice_ = makes_x ? shapes.x : shapes.y;
    if (makes_weights_)
      take(weight_gradient_of(shapes), {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS});
    else if (makes_x)
      take(data_gradient_of(shapes), {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS});
    else
      take(forward_of(shapes), {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS});
    reorder_ = makes_weights_ ? dnnl::reorder({engine(), packed_, engine(), plain_})
                              : dnnl::reorder({engine(), plain_, engine(), packed_});

    if (call.bindings[0].dtype != DType::f32) whole_floats_ = scratch(floats_of(whole_));
    if (!makes_weights_ && call.bindings[1].dtype != DType::f32)
      weight_floats_ = scratch(static_cast<uint64_t>(weights_of(p_)));
    slice_floats_ = slot_scratch(floats_of(slice_));
    packed_floats_ = slot_scratch(floats_of(packed_));
    pad_floats_ = slot_scratch(floats_of(pad_));
    place_slots(channels_ / width_);
  }

  void run(const KernelCall& call, const Memory& memory) const override {
    float* const whole = all(call, memory, 0, floats_of(whole_), whole_floats_);
    float* const weights = all(call, memory, makes_weights_ ? 2 : 1,
                               static_cast<uint64_t>(weights_of(p_)), weight_floats_);
    const size_t of_slice = makes_weights_ ? 1 : 2;
    const DType dtype = call.bindings[of_slice].dtype;
    const auto step = static_cast<uint64_t>(channels_) * size_of(dtype);
    for_pieces(channels_ / width_, [&](int64_t i) {
      const OneThread here;
      float* const slice = floats_of_slot(memory, slice_floats_);
      const float* const end = slice + floats_of(slice_);
      std::byte* pixel =
          place(call, memory, of_slice) + static_cast<uint64_t>(i * width_) * size_of(dtype);
      dnnl::memory plain(plain_, engine(), weights + i * weights_step_);
      dnnl::memory packed(packed_, engine(), floats_of_slot(memory, packed_floats_));
      dnnl::stream stream(engine());
      if (makes_weights_)
        for (float* to = slice; to < end; to += width_, pixel += step)
          to_floats(pixel, dtype, width_, to);
      else
        reorder_.execute(stream, plain, packed);
      primitive_.execute(
          stream, {{arguments_[0], {whole_, engine(), whole}},
                   {arguments_[1], {slice_, engine(), slice}},
                   {arguments_[2], packed},
                   {DNNL_ARG_SCRATCHPAD, {pad_, engine(), floats_of_slot(memory, pad_floats_)}}});
      if (makes_weights_) reorder_.execute(stream, packed, plain);
      stream.wait();
      for (const float* from = slice; !makes_weights_ && from < end; from += width_, pixel += step)
        from_floats(from, width_, dtype, pixel);
    });
  }

 private:
  static int64_t weights_of(const Conv2dParams& p) {
    return int64_t{p.out_c} * p.kernel_h * p.kernel_w * p.in_c;
  }
  static uint64_t floats_of(const memory::desc& tensor) {
    return tensor.get_size() / sizeof(float);
  }
  // Returns a multiple of oneDNN's blocks.
  static int64_t width_of(int64_t channels) { return std::max<int64_t>(64, channels / 8); }

  // `arguments` has oneDNN's names of the whole images, the sliced ones and the weights.
  void take(const dnnl::primitive_desc_base& description, std::array<int, 3> arguments) {
    arguments_ = arguments;
    primitive_ = dnnl::primitive(description.get());
    packed_ = description.query_md(dnnl::query::exec_arg_md, arguments[2]);
    pad_ = description.query_md(dnnl::query::scratchpad_md);
  }

  std::byte* place(const KernelCall& call, const Memory& memory, size_t i) const {
    return memory.bindings[i] +
           uint64_t{call.params_as<Conv2dParams>().offset[i]} * size_of(call.bindings[i].dtype);
  }
  // Returns a binding as f32: where it lies, or in scratch.
  float* all(const KernelCall& call, const Memory& memory, size_t i, uint64_t count,
             uint64_t begin) const {
    std::byte* const from = place(call, memory, i);
    if (call.bindings[i].dtype == DType::f32) return reinterpret_cast<float*>(from);
    all_to_floats(from, call.bindings[i].dtype, static_cast<int64_t>(count), floats(memory, begin));
    return floats(memory, begin);
  }

  Conv2dParams p_;
  bool makes_weights_;
  int64_t channels_ = 0, width_ = 0, weights_step_ = 0;  // of all, of a slice
  memory::desc whole_, slice_, plain_, packed_, pad_;
  std::array<int, 3> arguments_{};
  dnnl::primitive primitive_;
  dnnl::reorder reorder_;
  uint64_t whole_floats_ = 0, weight_floats_ = 0;
  uint64_t slice_floats_ = 0, packed_floats_ = 0, pad_floats_ = 0;
};

}  // namespace

std::shared_ptr<const PreparedCall> prepare_slices(const KernelCall& call) {
  return PreparedSlices::suits(call) ? std::make_shared<PreparedSlices>(call) : nullptr;
}

}  // namespace rw::cpu
