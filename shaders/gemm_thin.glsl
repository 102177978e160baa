// What the matrix products with few rows, or few terms in a sum, have in common: kernels of CPU
// drivers that read and write the large matrix once, four elements at a time where WORDS is true.
// A workgroup is one subgroup.
uint lane = gl_LocalInvocationID.x;

// Lanes whose values of the small matrix a loop goes through: more, and compiling takes over half a
// second.
#define LANES 4

// Where the matrices of one batch begin.
struct Matrices {
  uint a, b, c;
};

Matrices matrices(uint batch) {
  const uvec2 at = uvec2(batch / p.batch[1], batch % p.batch[1]);
  return Matrices(at.x * p.a_batch[0] + at.y * p.a_batch[1],
                  at.x * p.b_batch[0] + at.y * p.b_batch[1],
                  at.x * p.c_batch[0] + at.y * p.c_batch[1]);
}

// alpha * sum + beta * c: four columns from element `to` on, or one.
void store_columns(uint to, vec4 sum, bool adds, bool words) {
  sum *= p.alpha;
  if (words)
    store4_c(to, adds ? sum + p.beta * load4_c(to) : sum);
  else
    store_c(to, adds ? sum.x + p.beta * load_c(to) : sum.x);
}
