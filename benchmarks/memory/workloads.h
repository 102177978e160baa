// The programs whose memory the benchmark measures.
#pragma once

#include "../../models/bert.h"
#include "../../models/gpt.h"
#include "../../models/resnet.h"
#include "workload.h"

namespace rw::memory {

// A residual network with cross entropy. SGD uses the gradients, or they are computed and dropped.
struct ResNetWorkload {
  std::string model;  // for the report
  ResNetConfig config;
  int64_t depth = 0, scale = 0;
  int64_t batch = 1, size = 32;  // square images of `size` pixels
  DType dtype = DType::f32;
  bool optimizer = false;  // SGD with momentum
};
Workload resnet_workload(const ResNetWorkload& options);

// The CIFAR ResNet of version 2 and depth 6k + 2 that OpenAI's gradient-checkpointing measured;
// gradients only.
Workload cifar_workload(int k, int64_t batch, bool norm, DType dtype);
// ResNet-50 at 224 x 224 with SGD.
Workload resnet50_workload(int64_t batch, DType dtype);
// Five times the blocks of ResNet-200 (He et al. 2016): bottleneck stages of 16, 121, 180 and 16
// blocks, 1001 layers, pre-activated, 224 x 224.
Workload resnet1001_workload(int64_t batch, DType dtype);

// BERT pre-training: masked tokens (15 %) and next sentence, dropout 0.1, AdamW. The loss makes its
// logits in chunks. In f16, parameters, gradients and Adam's state stay f32.
struct BertWorkload {
  std::string preset = "base";
  int64_t batch = 1, length = 128;
  DType dtype = DType::f32;
};
Workload bert_workload(const BertWorkload& options);

// A causal decoder that predicts the next tokens, without dropout, with AdamW.
Workload gpt_workload(GptConfig config, int64_t batch, int64_t length);

// y = tanh(y), `ops` times in a row, on f32 [elements], and its gradient.
Workload chain_workload(int64_t ops, int64_t elements);

}  // namespace rw::memory
