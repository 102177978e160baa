// A step of chain.glsl, which includes this file for each step with STEP, its code, NUMBER, and the names of functions.

// The module is precise: compilers do not contract a step with its neighbours, so the bits are those of a kernel of its
// own.
float ONE(float v, float other) {
  float a = p.steps.a[NUMBER], b = p.steps.b[NUMBER];
  float r = v;
  float x = v, y = other, s = other, dy = v;
  switch (STEP) {  // STEP itself, since SPIRV-Cross does not take an expression here
#define UNARY(id, name, forward, grad, saves, lo, hi) case CHAIN_UNARY + id: r = forward; break;
#include "elementwise.def"
#define UNARY(id, name, forward, grad, saves, lo, hi) case CHAIN_GRAD + id: r = grad; break;
#include "elementwise.def"
#define ROW CHAIN_BINARY + 6 *
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) case ROW id: case ROW id + 2: case ROW id + 4: r = forward; break;
#include "elementwise.def"
  }
  x = other;
  y = v;
  switch (STEP) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) case ROW id + 1: case ROW id + 3: case ROW id + 5: r = forward; break;
#include "elementwise.def"
#undef ROW
  }
  return r;
}

// Returns the value of element k, which was v before.
float ELEMENT(uint k, float v) {
  if (STEP == CHAIN_NONE) return v;
  if (STEP == CHAIN_DROPOUT) return drop(k, vec4(v))[k % 4];
  float other = v;
  if (HAS_OPERAND(STEP)) {
    uint i = SCALAR(STEP) ? 0 : PERIODIC(STEP) ? k % p.steps.period[OPERAND] : k;
    if (OPERAND == 0) other = load_s(i);
    if (OPERAND == 1) other = load_t(i);
  }
  return ONE(v, other);
}

// The same for elements i to i + 3. i and `place`, where an operand that repeats goes on, are multiples of 4.
vec4 FOUR(uint i, uint place, vec4 v) {
  if (STEP == CHAIN_NONE) return v;
  if (STEP == CHAIN_DROPOUT) return drop(i, v);
  vec4 other = v;
  if (HAS_OPERAND(STEP)) {
    uint at = PERIODIC(STEP) ? place : i;
    if (OPERAND == 0) other = SCALAR(STEP) ? vec4(load_s(0)) : load4_s(at);
    if (OPERAND == 1) other = SCALAR(STEP) ? vec4(load_t(0)) : load4_t(at);
  }
  return vec4(ONE(v.x, other.x), ONE(v.y, other.y), ONE(v.z, other.z), ONE(v.w, other.w));
}

// The same for elements i to i + 7.
void EIGHT(uint i, inout vec4 lo, inout vec4 hi) {
  if (STEP == CHAIN_NONE) return;
  if (STEP == CHAIN_DROPOUT) {
    lo = drop(i, lo);
    hi = drop(i + 4, hi);
    return;
  }
  vec4 other_lo = lo, other_hi = hi;
  if (HAS_OPERAND(STEP)) {
    if (SCALAR(STEP)) {
      other_lo = other_hi = vec4(OPERAND == 0 ? load_s(0) : load_t(0));
    } else if (PERIODIC(STEP)) {
      uint period = p.steps.period[OPERAND], at = i % period;
      if (OPERAND == 0) {
        LOAD8_PERIODIC(load_s, load8_s, at, period, other_lo, other_hi);
      }
      if (OPERAND == 1) {
        LOAD8_PERIODIC(load_t, load8_t, at, period, other_lo, other_hi);
      }
    } else {
      if (OPERAND == 0) load8_s(i, other_lo, other_hi);
      if (OPERAND == 1) load8_t(i, other_lo, other_hi);
    }
  }
  lo = vec4(ONE(lo.x, other_lo.x), ONE(lo.y, other_lo.y), ONE(lo.z, other_lo.z), ONE(lo.w, other_lo.w));
  hi = vec4(ONE(hi.x, other_hi.x), ONE(hi.y, other_hi.y), ONE(hi.z, other_hi.z), ONE(hi.w, other_hi.w));
}
#undef STEP
#undef NUMBER
#undef OPERAND
#undef ONE
#undef ELEMENT
#undef FOUR
#undef EIGHT
