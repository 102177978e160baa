// The kernels of the cpu backend: plain loops that define what shaders/params.h describes.
#pragma once

#include "rewind/backends/cpu/elements.h"

namespace rw::cpu {

// elementwise.cpp
void fill(const Call& call);
void copy(const Call& call);
void unary(const Call& call);
void unary_grad(const Call& call);
void binary(const Call& call);
void compare(const Call& call);
void where(const Call& call);
void accumulate(const Call& call);

// random.cpp
void dropout(const Call& call);
void random(const Call& call);

// reduce.cpp
void reduce(const Call& call);
void argreduce(const Call& call);
void softmax(const Call& call);
void softmax_grad(const Call& call);

// loss.cpp
void cross_entropy(const Call& call);
void cross_entropy_grad(const Call& call);

// attention.cpp
void attention(const Call& call);
void attention_delta(const Call& call);
void attention_dq(const Call& call);
void attention_dkv(const Call& call);

// index.cpp
void gather(const Call& call);
void index_links(const Call& call);
void scatter_add(const Call& call);

// normalize.cpp
void batch_norm_stats(const Call& call);
void batch_norm_combine(const Call& call);
void batch_norm(const Call& call);
void batch_norm_grad_stats(const Call& call);
void batch_norm_grad(const Call& call);

// layer_norm.cpp
void layer_norm(const Call& call);
void layer_norm_grad(const Call& call);
void layer_norm_grad_stats(const Call& call);

// group_norm.cpp
void group_norm_stats(const Call& call);
void group_norm_combine(const Call& call);
void group_norm(const Call& call);
void group_norm_grad_stats(const Call& call);
void group_norm_grad(const Call& call);

// recurrent.cpp
void lstm_cell(const Call& call);
void lstm_cell_grad(const Call& call);
void gru_cell(const Call& call);
void gru_cell_grad(const Call& call);

// pool.cpp
void max_pool2d(const Call& call);
void max_pool2d_grad(const Call& call);
void avg_pool2d(const Call& call);
void avg_pool2d_grad(const Call& call);

// matmul.cpp, conv.cpp
void matmul(const Call& call);
void conv2d(const Call& call);
void conv2d_dgrad(const Call& call);
void conv2d_wgrad(const Call& call);

// optim.cpp
void grad_stats(const Call& call);
void update_prepare(const Call& call);
void sgd(const Call& call);
void adam(const Call& call);

// lamb.cpp
void lamb_norms(const Call& call);
void lamb_ratio(const Call& call);
void lamb(const Call& call);
void ema(const Call& call);

}  // namespace rw::cpu
