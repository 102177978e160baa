// Convolutions as layers. Channels are last. Weights are [out, kernel..., in / groups], and those
// of transposed convolutions [in, kernel..., out / groups], which files store in PyTorch's layout.
// Weight and bias start as PyTorch's, uniform within 1 / sqrt(last axis * kernel elements).
// ValueError for sizes and options that the op of the same name does not take.
#pragma once

#include "../ops/network/conv.h"
#include "module.h"

namespace rw {

// [N, H, W, in] -> [N, H', W', out], with sizes as for the op conv2d. The kernel is one number, or
// {height, width}. same_padding(kernel) keeps the size.
class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, Size2d kernel, const Conv2dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor weight;  // [out, kernel.h, kernel.w, in / groups]
  Tensor bias;    // [out], or undefined

 private:
  Conv2dOptions options_;
};

// [N, L, in] -> [N, L', out].
class Conv1d : public Module {
 public:
  Conv1d(int64_t in, int64_t out, int kernel, const Conv1dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor weight;  // [out, kernel, in / groups]
  Tensor bias;    // [out], or undefined

 private:
  Conv1dOptions options_;
};

// [N, D, H, W, in] -> [N, D', H', W', out].
class Conv3d : public Module {
 public:
  Conv3d(int64_t in, int64_t out, Size3d kernel, const Conv3dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor weight;  // [out, kernel.d, kernel.h, kernel.w, in / groups]
  Tensor bias;    // [out], or undefined

 private:
  Conv3dOptions options_;
};

// [N, H, W, in] -> [N, H', W', out], with sizes as for the op conv_transpose2d.
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(int64_t in, int64_t out, Size2d kernel,
                  const ConvTranspose2dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor weight;  // [in, kernel.h, kernel.w, out / groups]
  Tensor bias;    // [out], or undefined

 private:
  ConvTranspose2dOptions options_;
};

// [N, L, in] -> [N, L', out].
class ConvTranspose1d : public Module {
 public:
  ConvTranspose1d(int64_t in, int64_t out, int kernel, const ConvTranspose1dOptions& options = {});
  Tensor forward(Tensor x) override;

  Tensor weight;  // [in, kernel, out / groups]
  Tensor bias;    // [out], or undefined

 private:
  ConvTranspose1dOptions options_;
};

}  // namespace rw
