// sin and cos to about 1 ulp of 1: Vulkan asks for an absolute error of 2^-11 only, and drivers take it.

// x less the nearest multiple of pi / 2 (Cody and Waite 1980: pi / 2 in three parts), and the multiple
// modulo 4. Good up to |x| of about 10^4.
float quarter_turns(float x, out int quadrant) {
  float k = floor(x * 0.636619772 + 0.5);
  quadrant = int(k) & 3;
  precise float r = x - k * 1.5703125;
  r = r - k * 4.837512969970703125e-4;
  r = r - k * 7.54978995489188216e-8;
  return r;
}

// Minimax polynomials on [-pi/4, pi/4].
float sin_quarter(float r) {
  float z = r * r;
  return r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
}
float cos_quarter(float r) {
  float z = r * r;
  return 1.0 - 0.5 * z + z * z * (4.166664568e-2 + z * (-1.388731625e-3 + z * 2.443315712e-5));
}

float exact_sin(float x) {
  int quadrant;
  float r = quarter_turns(x, quadrant);
  float y = (quadrant & 1) == 0 ? sin_quarter(r) : cos_quarter(r);
  return quadrant >= 2 ? -y : y;
}
float exact_cos(float x) {
  int quadrant;
  float r = quarter_turns(x, quadrant);
  float y = (quadrant & 1) == 0 ? cos_quarter(r) : sin_quarter(r);
  return quadrant == 1 || quadrant == 2 ? -y : y;
}

#define sin(x) exact_sin(x)
#define cos(x) exact_cos(x)
