// Layers: thin modules around the ops of ops/ops.h. Images are NHWC, convolution weights OHWI.
// Initial values are PyTorch's.
#pragma once

#include <memory>
#include <optional>

#include "../ops/ops.h"
#include "activations.h"
#include "conv.h"
#include "module.h"

namespace rw {

// [..., in] -> [..., out]. Weight and bias start uniform within 1 / sqrt(in). ValueError, here and
// below, for sizes that are not positive, and in forward without a weight and without a substitute.
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias = true);
  Tensor forward(Tensor x) override;

  // From now on `module`, [..., in] -> [..., out], gives the output: an adapter around weight and
  // bias, or the weight in another form. Its parameters are part of this module and have their
  // names beside weight and bias. Null: weight and bias give the output again. Returns what did so
  // before. ValueError for null if the weight was released.
  std::unique_ptr<Module> substitute(std::unique_ptr<Module> module);
  Module* substitute() const { return substitute_.get(); }  // null: weight and bias
  // The weight is no parameter any more, and its memory goes with its last handle: for a substitute
  // that has it in another form. ValueError without one.
  void release_weight();
  // The weight is a parameter again, or for the first time (init::WithoutWeights), with any values.
  // ValueError if there is one.
  void restore_weight(DType dtype = DType::f32);

  int64_t in_features() const { return in_; }    // also without the weight
  int64_t out_features() const { return out_; }  // likewise

  Tensor weight;  // [out, in]; undefined: there is none
  Tensor bias;    // [out], or undefined

 private:
  int64_t in_, out_;
  std::unique_ptr<Module> substitute_;
};

// Normalises x [..., channels] over all axes but the last (Ioffe and Szegedy 2015). Training
// normalises by the batch and moves the running statistics towards it by `momentum`, once per
// forward; the replay of a segment does not move them. There is no num_batches_tracked: PyTorch
// reads it only for momentum = None, and loads models without it.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels, float eps = 1e-5f, float momentum = 0.1f);
  Tensor forward(Tensor x) override;

  Tensor weight, bias;               // [channels]
  Tensor running_mean, running_var;  // [channels]; the variance is the unbiased one
  // If set, statistics in training are those of all parts of the batch (PyTorch's SyncBatchNorm).
  std::shared_ptr<StatisticsExchange> exchange;

 private:
  float eps_, momentum_;
};

// In training it zeroes elements with probability p, in [0, 1) (ValueError), and scales the rest by
// 1 / (1 - p); in evaluation it is the identity.
class Dropout : public Module {
 public:
  explicit Dropout(float p = 0.5f, GeneratorRef generator = {});
  Tensor forward(Tensor x) override;

 private:
  float p_;
  GeneratorRef generator_;
};

// PyTorch's options.
struct EmbeddingOptions {
  std::optional<int32_t> padding_index = {};  // its row begins as 0 and gets no gradient
  std::optional<float> max_norm =
      {};               // rows that are looked up are first scaled down to it, in place
  float norm_type = 2;  // the norm's p
};
// A row of the table for each index: i32 [...] -> [..., dimension]. The table starts normal (0, 1).
// The op embedding says what indices out of range give.
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t dimension, const EmbeddingOptions& options = {});
  Tensor forward(Tensor index) override;

  // From now on `module`, i32 [...] -> [..., dimension], gives the rows; otherwise as those of
  // Linear. ValueError for options, which a substitute does not know.
  std::unique_ptr<Module> substitute(std::unique_ptr<Module> module);
  const Module* substitute() const { return substitute_.get(); }  // null: the table
  void release_weight();                                          // of the table
  void restore_weight(DType dtype = DType::f32);

  int64_t rows() const { return rows_; }            // also without the table
  int64_t dimension() const { return dimension_; }  // likewise

  Tensor weight;  // [rows, dimension]; undefined: there is none

 private:
  void renormalise(const Tensor& index);
  EmbeddingOptions options_;
  int64_t rows_, dimension_;
  std::unique_ptr<Module> substitute_;
};

// [N, ...] -> [N, product].
class Flatten : public Module {
 public:
  Tensor forward(Tensor x) override { return flatten(std::move(x), 1); }
};

// [N, H, W, C] -> [N, H', W', C]. Sizes are one number, or {height, width}; stride 0 means the
// kernel's. The padding, at most half the kernel, is never a maximum.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2d kernel, Size2d stride = 0, Size2d padding = 0, Size2d dilation = 1);
  Tensor forward(Tensor x) override { return max_pool2d(std::move(x), options_); }

 private:
  Pool2dOptions options_;
};

// The mean of each window, otherwise like MaxPool2d. The padding counts as zeros, or not at all
// with count_include_pad = false.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2d kernel, Size2d stride = 0, Size2d padding = 0,
                     bool count_include_pad = true);
  Tensor forward(Tensor x) override { return avg_pool2d(std::move(x), options_); }

 private:
  Pool2dOptions options_;
};

//! torch: none
// [N, H, W, C] -> [N, C]: the mean of each channel.
class GlobalAvgPool : public Module {
 public:
  Tensor forward(Tensor x) override { return mean(std::move(x), {1, 2}); }
};

}  // namespace rw
