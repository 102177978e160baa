// Convolutions as oneDNN describes them. This header hides the differences between versions 2.6 and
// 3.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "../../shaders/params.h"

namespace rw::cpu {

const dnnl::engine& engine();
dnnl::memory::dims dims_of(const dnnl::memory::desc& tensor);

// The tensors of a convolution of so many images. Weights may have any layout that suits it.
struct Shapes {
  dnnl::memory::desc x, y, w, w_plain;  // w_plain: OHWI, the layout of ours
  dnnl::memory::dims strides, dilations, pads;

  Shapes(const kernels::Conv2dParams& p, int64_t images);

  // Returns the same with x and y in any layout, too.
  Shapes in_any_layout() const;
};

// Scratchpads belong to the caller.
dnnl::convolution_forward::primitive_desc forward_of(const Shapes& s);
dnnl::convolution_backward_data::primitive_desc data_gradient_of(const Shapes& s);
dnnl::convolution_backward_weights::primitive_desc weight_gradient_of(const Shapes& s);

}  // namespace rw::cpu
