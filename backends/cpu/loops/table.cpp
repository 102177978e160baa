// The loops of a level by the names of their kernels. A new loop is a line here.
#include "backends/cpu/loops/level.h"

#define REWIND_LOOPS(X)      \
  X(accumulate)              \
  X(adafactor)               \
  X(adafactor_columns)       \
  X(adafactor_combine)       \
  X(adafactor_norms)         \
  X(adafactor_rows)          \
  X(adam)                    \
  X(adam_8bit)               \
  X(adama)                   \
  X(adama_fold)              \
  X(argreduce)               \
  X(attention)               \
  X(attention_delta)         \
  X(attention_dkv)           \
  X(attention_dmask)         \
  X(attention_dq)            \
  X(attention_grad)          \
  X(avg_pool2d)              \
  X(avg_pool2d_grad)         \
  X(batch_norm)              \
  X(batch_norm_grad)         \
  X(batch_norm_grad_stats)   \
  X(batch_norm_stats)        \
  X(binary)                  \
  X(compare)                 \
  X(copy)                    \
  X(cross_entropy)           \
  X(cross_entropy_grad)      \
  X(ctc_alpha)               \
  X(ctc_beta)                \
  X(ctc_grad)                \
  X(ctc_states)              \
  X(ctc_total)               \
  X(decode_blocks)           \
  X(dequantize_blocks)       \
  X(dropout)                 \
  X(ema)                     \
  X(fill)                    \
  X(flat_index)              \
  X(gather)                  \
  X(grad_stats)              \
  X(group_norm)              \
  X(group_norm_combine)      \
  X(group_norm_grad)         \
  X(group_norm_grad_stats)   \
  X(group_norm_stats)        \
  X(gru_cell)                \
  X(gru_cell_grad)           \
  X(lamb)                    \
  X(lamb_norms)              \
  X(lamb_ratio)              \
  X(layer_norm)              \
  X(layer_norm_grad)         \
  X(layer_norm_grad_stats)   \
  X(lookahead)               \
  X(lstm_cell)               \
  X(lstm_cell_grad)          \
  X(matmul)                  \
  X(max_pool2d)              \
  X(max_pool2d_grad)         \
  X(moment_update)           \
  X(muon)                    \
  X(muon_momentum)           \
  X(multiply_blocks)         \
  X(nll_loss)                \
  X(nll_loss_grad)           \
  X(pad_axis)                \
  X(pad_axis_grad)           \
  X(pair_loss)               \
  X(pair_loss_grad)          \
  X(quantize_blocks)         \
  X(random)                  \
  X(reduce)                  \
  X(resample2d)              \
  X(resample2d_grad)         \
  X(rnnt_alpha)              \
  X(rnnt_beta)               \
  X(rnnt_total)              \
  X(rotary)                  \
  X(scan)                    \
  X(scatter_add)             \
  X(scatter_put)             \
  X(sgd)                     \
  X(soft_cross_entropy)      \
  X(soft_cross_entropy_grad) \
  X(softmax)                 \
  X(softmax_grad)            \
  X(sort_blocks)             \
  X(sort_merge)              \
  X(sorted_lasts)            \
  X(unary)                   \
  X(unary_grad)              \
  X(value_range)             \
  X(where)                   \
  X(window_add)              \
  X(window_fold)

namespace rw::cpu::REWIND_LEVEL {

#define REWIND_LOOP(kernel) bool kernel(const LoopCall& call);
REWIND_LOOPS(REWIND_LOOP)
#undef REWIND_LOOP

extern const Loop table[];
extern const size_t table_size;

#define REWIND_LOOP(kernel) {#kernel, kernel},
const Loop table[] = {REWIND_LOOPS(REWIND_LOOP)};
#undef REWIND_LOOP
const size_t table_size = sizeof table / sizeof table[0];

}  // namespace rw::cpu::REWIND_LEVEL
