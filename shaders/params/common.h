// Constants that the parameters of several families share.

#define REWIND_MAX_DIMS 6
// A flat kernel handles this many consecutive elements per thread: threads.x = ceil(n / 8).
// variant `flat` = 1: the tensors are dense. Element offsets that are multiples of 8 are the fast
// case.
#define REWIND_FLAT 8
// Batch normalisation: a thread handles 8 channels of this many consecutive rows, so it loads the
// channels' values once.
#define BATCH_NORM_ROWS 16
#define BATCH_NORM_RUN 256  // chunks that batch_norm_combine joins at once, at most
// Normalisations square NORM_SCALE times the deviations, so that squares do not overflow for
// deviations up to 1e28, and do not vanish down to 1e-7, where eps is larger. A power of two rounds
// nothing.
#define NORM_SCALE 9.094947017729282e-13f  // 2^-40
