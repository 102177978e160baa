// What all attention kernels say of masks and keys.
#include "philox.glsl"

layout(constant_id = 0) const bool MASKED = false;
#define LOWEST (3.0 * ATTENTION_NO_SCORE)  // of a score that does not count

// Keys that count for any query of the batch element.
uint key_count(uint batch) {
  return (p.flags & ATTENTION_LENGTHS) != 0 ? min(p.keys, uint(max(0, load_lengths(batch)))) : p.keys;
}
