// Chains: a kernel and what comes after it on each of its elements.

// A step is an op on the result of the step before. The first step that has an operand reads s, the
// other one reads t. Codes:
#define CHAIN_NONE 0
#define CHAIN_UNARY 1  // + row of UNARY, with a and b
#define CHAIN_DROPOUT 64
#define CHAIN_OPERAND 128  // set in the codes of steps that have one
#define CHAIN_GRAD \
  128  // + row of UNARY: its gradient, of dy = the value and s = the operand, with a and b
#define CHAIN_BINARY \
  384  // + 6 * row of BINARY + 2 * (mode of BinaryParams - 1) + (the operand comes first)
#define CHAIN_STEPS 3
#define CHAIN_OPERANDS 2
struct ChainSteps {
  float a[CHAIN_STEPS];
  float b[CHAIN_STEPS];
  uint period[CHAIN_OPERANDS];
  float keep;  // of the one dropout, as in DropoutParams
  uint seed_lo, seed_hi;
  uint counter_lo, counter_hi;
};

// chain: y = the steps of x, dense. The variant is {step, step, step}. Anything may be bound to an
// operand that no step has. Flat.
struct ChainParams {
  uint offset[4];  // x, s, t, y
  uint n;
  ChainSteps steps;
};

// gemm_chain_tiled: y [m, n] = the steps of alpha a b, for one product in which each factor, y and
// what the steps read lie in whole words (gemm_tiled's), and what repeats does so with each row.
// The variant is {step, step, step, a_col is 1, b_row is 1}. One workgroup per tile.
struct GemmChainParams {
  uint offset[5];  // a, b, s, t, y
  uint m, n, k;
  uint a_row, a_col, b_row, b_col;
  float alpha;
  ChainSteps steps;
};

// batch_norm_chain: y = the steps of batch_norm's result. The variant is chain's, the threads are
// batch_norm's.
struct BatchNormChainParams {
  uint offset[8];  // x, mean, var, weight, bias, s, t, y
  uint n, channels;
  float eps;
  uint has_rest;
  ChainSteps steps;
};
