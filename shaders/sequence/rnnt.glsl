// The common part of the kernels of the transducer loss.
#include "sequence/log_ways.glsl"

uint place(uint n, uint t, uint u) { return (n * p.frames + t) * p.width + u; }
