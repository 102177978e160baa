// The kernels of the reference backend: plain loops that define the results which shaders/params.h
// describes.
#pragma once

#include <cstddef>
#include <string_view>

#include "elements.h"

namespace rw::reference {

// `types` has the accepted combinations, with one letter per binding: f32, (h)alf = f16, i32, u8.
struct Kernel {
  std::string_view name;
  std::string_view types;
  size_t params_size;
  void (*run)(const Call&);
};

}  // namespace rw::reference

#include "shaders/reference_kernels.h"

namespace rw::reference {

// Each of these is a single loop here and several shaders in the Vulkan backend: matmul.cpp,
// conv.cpp, attention.cpp, reduce.cpp, normalize.cpp, layer_norm.cpp.
void matmul(const Call& call);
void conv2d(const Call& call);
void conv2d_dgrad(const Call& call);
void conv2d_wgrad(const Call& call);
void attention(const Call& call);
void attention_dq(const Call& call);
void attention_dkv(const Call& call);
void attention_grad(const Call& call);
void batch_norm_stats(const Call& call);
void batch_norm_grad_stats(const Call& call);
void layer_norm_grad_stats(const Call& call);

inline constexpr Kernel composed_kernels[] = {
    {"matmul", "fff ffh hhh hhf", sizeof(kernels::MatmulParams), matmul},
    {"conv2d", "fff ffh hhh hhf", sizeof(kernels::Conv2dParams), conv2d},
    {"conv2d_dgrad", "fff ffh hhh hhf", sizeof(kernels::Conv2dParams), conv2d_dgrad},
    {"conv2d_wgrad", "fff hhf", sizeof(kernels::Conv2dParams), conv2d_wgrad},
    {"attention", "ffffiff hhhfihf", sizeof(kernels::AttentionParams), attention},
    {"attention_dq", "ffffffif hhhhffih", sizeof(kernels::AttentionParams), attention_dq},
    {"attention_dkv", "ffffffif hhhhffih", sizeof(kernels::AttentionParams), attention_dkv},
    {"attention_grad", "ffffffif hhhhffih", sizeof(kernels::AttentionParams), attention_grad},
    {"reduce", "ff fh hh hf ii", sizeof(kernels::ReduceParams), reduce},
    {"batch_norm_stats", "ffff hfff", sizeof(kernels::BatchNormParams), batch_norm_stats},
    {"batch_norm_grad_stats", "fffff hhfff", sizeof(kernels::BatchNormParams),
     batch_norm_grad_stats},
    {"layer_norm_grad_stats", "ffff hhff", sizeof(kernels::LayerNormParams), layer_norm_grad_stats},
};

}  // namespace rw::reference
