// Small networks over sequences, as users write them: many small ops in chains with skip
// connections.
#pragma once

#include "workload.h"

namespace rw::memory {

// Gated convolutions of growing dilation, with residuals and with skip connections to the end (van
// den Oord et al. 2016). The setting checkpoint = "matmuls" makes a segment of each layer, by
// save_matmuls().
struct WaveNetWorkload {
  int layers = 6;
  int64_t batch = 4, length = 1024, channels = 32, classes = 64;
};
Workload wavenet_workload(const WaveNetWorkload& options = {});

// An encoder and a decoder of GRU cells made of ops. Each step of the decoder attends to all states
// of the encoder.
struct Seq2SeqWorkload {
  int64_t steps = 16, batch = 32, width = 64, words = 200;
};
Workload seq2seq_workload(const Seq2SeqWorkload& options = {});

}  // namespace rw::memory
