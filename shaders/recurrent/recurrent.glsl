// The recurrent cells: a thread has 4 consecutive elements of a row's state with all their gates, or one element if
// rows do not move in words; the other components then repeat it.
#include "elementwise/exact.glsl"
layout(constant_id = 0) const uint WHOLE = 0;  //! 0 1

// Returns the thread's first element in [rows, hidden].
uint state_at() { return thread_id() * (WHOLE == 1 ? 4 : 1); }
// Returns the place of that element of gate k in [rows, gates, hidden].
uint gate_at(uint k, uint gates) {
  uint row = state_at() / p.hidden;
  return (row * (gates - 1) + k) * p.hidden + state_at();
}

vec4 sigmoid(vec4 x) { return 1.0 / (1.0 + exp(-x)); }
