#include "backends/cpu/conv_shapes.h"

namespace rw::cpu {

using dnnl::memory;

namespace {

dnnl::primitive_attr own_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

constexpr auto direct = dnnl::algorithm::convolution_direct;

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine only(dnnl::engine::kind::cpu, 0);
  return only;
}

Shapes::Shapes(const kernels::Conv2dParams& p, int64_t images) {
  const memory::data_type f32 = memory::data_type::f32;
  const auto tag = memory::format_tag::nhwc;
  x = {{images, p.in_c, p.in_h, p.in_w}, f32, tag};
  y = {{images, p.out_c, p.out_h, p.out_w}, f32, tag};
  const int64_t groups = p.groups, outputs = p.out_c / groups, inputs = p.in_c / groups;
  const memory::dims one = {p.out_c, p.in_c, p.kernel_h, p.kernel_w};
  const memory::dims several = {groups, outputs, inputs, p.kernel_h, p.kernel_w};
  const memory::dims& dims = groups > 1 ? several : one;
  w = {dims, f32, memory::format_tag::any};
  // The order is OHWI, for which oneDNN has no tag if there are groups.
  const int64_t pixel = inputs, line = pixel * p.kernel_w, output = line * p.kernel_h;
  w_plain = groups > 1 ? memory::desc(dims, f32, {outputs * output, output, 1, line, pixel})
                       : memory::desc(dims, f32, {output, 1, line, pixel});
  strides = {p.stride_h, p.stride_w};
  dilations = {int64_t{p.dilation_h} - 1, int64_t{p.dilation_w} - 1};
  pads = {p.pad_h, p.pad_w};
}

Shapes Shapes::in_any_layout() const {
  Shapes all = *this;
  for (memory::desc* images : {&all.x, &all.y})
    *images = {dims_of(*images), memory::data_type::f32, memory::format_tag::any};
  return all;
}

#if DNNL_VERSION_MAJOR >= 3
memory::dims dims_of(const memory::desc& tensor) {
  return tensor.get_dims();
}
dnnl::convolution_forward::primitive_desc forward_of(const Shapes& s) {
  return dnnl::convolution_forward::primitive_desc(engine(), dnnl::prop_kind::forward_training,
                                                   direct, s.x, s.w, s.y, s.strides, s.dilations,
                                                   s.pads, s.pads, own_scratchpad());
}
dnnl::convolution_backward_data::primitive_desc data_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_data::primitive_desc(engine(), direct, s.x, s.w, s.y, s.strides,
                                                         s.dilations, s.pads, s.pads, forward_of(s),
                                                         own_scratchpad());
}
dnnl::convolution_backward_weights::primitive_desc weight_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_weights::primitive_desc(engine(), direct, s.x, s.w, s.y,
                                                            s.strides, s.dilations, s.pads, s.pads,
                                                            forward_of(s), own_scratchpad());
}
#else
memory::dims dims_of(const memory::desc& tensor) {
  return tensor.dims();
}
dnnl::convolution_forward::primitive_desc forward_of(const Shapes& s) {
  return dnnl::convolution_forward::primitive_desc(
      {dnnl::prop_kind::forward_training, direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads,
       s.pads},
      own_scratchpad(), engine());
}
dnnl::convolution_backward_data::primitive_desc data_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_data::primitive_desc(
      {direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads, s.pads}, own_scratchpad(), engine(),
      forward_of(s));
}
dnnl::convolution_backward_weights::primitive_desc weight_gradient_of(const Shapes& s) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {direct, s.x, s.w, s.y, s.strides, s.dilations, s.pads, s.pads}, own_scratchpad(), engine(),
      forward_of(s));
}
#endif

}  // namespace rw::cpu
