// The common part of the kernels of the CTC loss: a sample's states, and the place of a row's offset.
#include "sequence/log_ways.glsl"

#define CLASS 0
#define NEXT 1
#define FLAGS 2
#define COUNTS 3
#define OFFSET (p.width - 1)

uint row_at(uint sample_number, uint t) { return (t * p.samples + sample_number) * p.width; }
uint state_at(uint sample_number, uint row, uint s) {
  return (sample_number * 4 + row) * p.width + s;
}
