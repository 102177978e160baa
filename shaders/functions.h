// Functions of the rows of elementwise.def, for the cpu's vector loops and for GLSL. They have no
// branches. Each is within 4 ulp of the true value for every float, with or without products and
// sums that are rounded once, and right for NaN and infinities. An includer defines SHARED (what
// stands before a function), mul_add, bits_of, float_of, copy_sign, infinity and nan, and has abs,
// floor, sqrt, max and min. Coefficients without a source were fitted to a relative error of 2e-8
// by weighted least squares.

SHARED float polynomial(float x, float a, float b) {
  return mul_add(b, x, a);
}
SHARED float polynomial(float x, float a, float b, float c) {
  return mul_add(polynomial(x, b, c), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d) {
  return mul_add(polynomial(x, b, c, d), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e) {
  return mul_add(polynomial(x, b, c, d, e), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e, float f) {
  return mul_add(polynomial(x, b, c, d, e, f), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e, float f, float g) {
  return mul_add(polynomial(x, b, c, d, e, f, g), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e, float f, float g,
                        float h) {
  return mul_add(polynomial(x, b, c, d, e, f, g, h), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e, float f, float g,
                        float h, float i) {
  return mul_add(polynomial(x, b, c, d, e, f, g, h, i), x, a);
}
SHARED float polynomial(float x, float a, float b, float c, float d, float e, float f, float g,
                        float h, float i, float j) {
  return mul_add(polynomial(x, b, c, d, e, f, g, h, i, j), x, a);
}

// Returns y, or NaN where x is infinite: formulas in which it is multiplied by 0.
SHARED float if_finite(float x, float y) {
  return int(bits_of(x) & 0x7fffffffu) < 0x7f800000 ? y : nan;
}
// The same for negative infinity alone.
SHARED float if_above_infinity(float x, float y) {
  return bits_of(x) == 0xff800000u ? nan : y;
}

// Returns the first 12 bits of x, whose products are exact.
SHARED float first_bits(float x) {
  return float_of(bits_of(x) & 0xfffff000u);
}

// Returns 2^n for n of -126 to 127.
SHARED float power_of_two(int n) {
  return float_of(uint(n + 127) << 23);
}

// Returns how many times x contains ln 2, and subtracts so many, for |x| of at most 2^15.
SHARED float whole_logarithms(float x) {
  return floor(mul_add(x, 1.44269504f, 0.5f));
}
SHARED float minus_logarithms(float x, float n) {
  return mul_add(n, -1.42860677e-6f, mul_add(n, -0.693145752f, x));
}

// Returns exp(x) - 1 for |x| <= ln(2) / 2.
SHARED float small_expm1(float x) {
  return mul_add(x * x,
                 polynomial(x, 0.5f, 1.66666672e-1f, 4.16664891e-2f, 8.33329465e-3f, 1.39465591e-3f,
                            1.98872353e-4f),
                 x);
}

// Returns factor * exp(high + low), for sums of at most 89. Only the result is rounded to a
// denormal.
SHARED float scaled_exp(float high, float low, float factor) {
  const float most = high < -160.0f ? -160.0f : high, n = whole_logarithms(most + low);
  const float y = mul_add(factor, small_expm1(minus_logarithms(most, n) + low), factor);
  const int whole = int(n), half_n = whole >> 1;  // 2^n may not be a float
  return y * power_of_two(half_n) * power_of_two(whole - half_n);
}

SHARED float exp(float x) {
  const float within = x > 89.0f ? 89.0f : x < -104.5f ? -104.5f : x, n = whole_logarithms(within);
  const int whole = int(n), half_n = whole >> 1;
  return (1.0f + small_expm1(minus_logarithms(within, n))) * power_of_two(half_n) *
         power_of_two(whole - half_n);
}

SHARED float expm1(float x) {
  const float within = x > 89.0f ? 89.0f : x < -18.0f ? -18.0f : x, n = whole_logarithms(within);
  const float y = small_expm1(minus_logarithms(within, n)), half_power = power_of_two(int(n) - 1);
  return 2.0f * mul_add(half_power, y, half_power - 0.5f);
}

// Splits x into 2^n (1 + f), with 1 + f from sqrt(1/2) to sqrt(2). A denormal is so many times
// 2^-149.
SHARED float log(float x) {
  const int bits = int(bits_of(x));
  const bool is_small = bits < 0x00800000;
  const int above = (is_small ? int(bits_of(float(bits))) : bits) - 0x3f3504f3;
  const float n = float(above >> 23) - (is_small ? 149.0f : 0.0f);
  const float f = float_of(uint((above & 0x7fffff) + 0x3f3504f3)) - 1.0f, square = f * f;
  const float series = polynomial(f, 3.3333331174e-1f, -2.4999993993e-1f, 2.0000714765e-1f,
                                  -1.6668057665e-1f, 1.4249322787e-1f, -1.2420140846e-1f,
                                  1.1676998740e-1f, -1.1514610310e-1f, 7.0376836292e-2f);
  const float tail = mul_add(n, -2.12194440e-4f, f * square * series);
  const float y = mul_add(n, 0.693359375f, f + mul_add(square, -0.5f, tail));
  const float special = (bits & 0x7fffffff) == 0 ? -infinity : bits < 0 ? nan : x;
  return bits > 0 && bits < 0x7f800000 ? y : special;
}

// Adds what rounding 1 + x loses.
SHARED float log1p(float x) {
  const float y = 1.0f + x, lost = x - (y - 1.0f);
  const int bits = int(bits_of(y));
  return bits > 0 && bits < 0x7f800000 ? log(y) + lost / y : log(y);
}

SHARED float sigmoid(float x) {
  const float e = exp(-abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
SHARED float sigmoid_grad(float x) {
  const float e = exp(-abs(x));
  return e / mul_add(e, 2.0f + e, 1.0f);
}

SHARED float tanh(float x) {
  const float size = abs(x), y = expm1(2.0f * (size > 10.0f ? 10.0f : size));
  return copy_sign(y / (y + 2.0f), x);
}
SHARED float tanh_grad(float x) {
  return 4.0f * sigmoid_grad(2.0f * x);
}

SHARED float softplus(float x) {
  return max(x, 0.0f) + log1p(exp(-abs(x)));
}

// Functions x times a share s(x) with s(x) + s(-x) = 1 have slopes with slope(x) + slope(-x) = 1:
// both are computed for negative numbers. Near the slope's only zero the terms of its formula
// cancel: there it is the distance from the zero, which is the sum of two floats, times a
// polynomial.
SHARED float silu(float x) {
  const float size = abs(x), within = size > 160.0f ? 160.0f : size;
  const float y = scaled_exp(-within, 0.0f, within) / (1.0f + exp(-within));
  return if_above_infinity(x, x < 0.0f ? -y : x - y);
}
SHARED float silu_grad(float x) {
  const float size = abs(x), within = size > 160.0f ? 160.0f : size, e = exp(-within);
  const float far = scaled_exp(-within, 0.0f, (1.0f - within) + e) / mul_add(e, 2.0f + e, 1.0f);
  const float d = (1.2784646f - within) - 1.29792825e-8f;
  const float near = d * polynomial(d, 2.178117e-1f, 1.4664881e-1f, 1.8874768e-2f, -1.52241485e-2f,
                                    -6.6050882e-3f, 1.576105e-4f, 7.835712e-4f);
  const float slope = abs(d) < 0.3125f ? near : far;
  return if_finite(x, x > 0.0f ? 1.0f - slope : slope);
}

// Returns exp(-x^2 / 2) * factor, for |x| of at most 16.
SHARED float scaled_bell(float x, float factor) {
  const float high = first_bits(x), low = x - high;
  return scaled_exp(-0.5f * high * high, -0.5f * low * (x + high), factor);
}

// The distribution of normal numbers at -t is exp(-t^2 / 2) times a function that polynomials of (t
// - 3) / (t + 3) approximate.
SHARED float gelu(float x) {
  const float size = abs(x), t = size > 15.0f ? 15.0f : size, r = t / (t + 3.0f),
              s = (r - 1.0f) + r;
  const float share =
      polynomial(s, 7.290837e-1f, -5.093322e-1f, 2.3001763e-1f, -4.7258016e-2f, -1.04615195e-2f,
                 6.9368538e-3f, 1.0135112e-3f, -9.4722013e-4f, -1.9939225e-4f, 5.4511376e-5f);
  const float y = scaled_bell(t, r * share);
  return if_above_infinity(x, x < 0.0f ? -y : x - y);
}
SHARED float gelu_grad(float x) {
  const float size = abs(x), t = size > 15.0f ? 15.0f : size, r = t / (t + 3.0f),
              s = (r - 1.0f) + r;
  const float d = (0.75179154f - t) - 1.211445e-8f;
  const float slope = scaled_bell(t, d * polynomial(s, 4.7829768e-1f, -1.1997545e-1f, 5.3596627e-2f,
                                                    -1.4074332e-2f, 1.9893673e-4f, 1.0908575e-3f,
                                                    -7.779041e-5f, -1.1440805e-4f, -1.0765729e-5f));
  return if_finite(x, x > 0.0f ? 1.0f - slope : slope);
}

// tanh(u) is 2 sigmoid(2 u) - 1. Returns factor * exp(-2 u), for u of t from 0 to 12, with 2 u = t
// (1.59576912 + 0.07135482 t^2) in two floats.
SHARED float scaled_gelu_exp(float t, float factor) {
  const float high = first_bits(t), low = t - high, square = high * high,
              first = first_bits(square);
  const float rest = mul_add(low, t + high, square - first);  // t^2 is first + rest
  const float product = 0.0713500977f * first, sum = 1.59570312f + product, head = first_bits(sum);
  const float tail = ((product - (sum - 1.59570312f)) + (sum - head)) +
                     mul_add(0.0713548139f, rest, mul_add(4.7186163e-6f, first, 6.59966057e-5f));
  return scaled_exp(-high * head, -mul_add(high, tail, low * (head + tail)), factor);
}
SHARED float gelu_tanh(float x) {
  const float size = abs(x), t = size > 12.0f ? 12.0f : size;
  const float y = scaled_gelu_exp(t, t) / (1.0f + scaled_gelu_exp(t, 1.0f));
  return if_above_infinity(x, x < 0.0f ? -y : x - y);
}
SHARED float gelu_tanh_grad(float x) {
  const float size = abs(x), t = size > 12.0f ? 12.0f : size, e = scaled_gelu_exp(t, 1.0f);
  const float rest =
      mul_add(-t, mul_add(0.214064449f, t * t, 6.59966057e-5f), mul_add(-1.59570312f, t, 1.0f));
  const float d = (0.75246143f - t) - 1.1339628e-8f;
  const float far = scaled_gelu_exp(t, rest + e) / mul_add(e, 2.0f + e, 1.0f);
  const float near =
      d * polynomial(d, 4.304001e-1f, 3.875184e-1f, -1.5782822e-2f, -1.139427e-1f, -1.6619427e-2f,
                     1.9656325e-2f, 5.254782e-3f, -2.28158e-3f, -8.727926e-4f);
  const float slope = abs(d) < 0.5f ? near : far;
  return if_finite(x, x > 0.0f ? 1.0f - slope : slope);
}

// With e = exp(x), tanh(log(1 + e)) is n / (n + 2), where n = e (e + 2). It is 1 in f32 from 20 on.
SHARED float mish(float x) {
  const float t = x > 20.0f     ? 20.0f
                  : x < -160.0f ? -160.0f
                                : x,
              e = exp(t), y = mul_add(e, e + 2.0f, 2.0f);
  return if_above_infinity(x,
                           x < 0.0f ? scaled_exp(t, 0.0f, t * (e + 2.0f)) / y : x - t * (2.0f / y));
}
SHARED float mish_grad(float x) {
  const float t = x > 20.0f     ? 20.0f
                  : x < -160.0f ? -160.0f
                                : x,
              e = exp(t), y = mul_add(e, e + 2.0f, 2.0f);
  const float top = mul_add(e, mul_add(e, 4.0f + e, mul_add(4.0f, t, 6.0f)), 4.0f * (1.0f + t));
  const float below = scaled_exp(t, 0.0f, top) / (y * y), quotient = 2.0f / y;
  const float above = 1.0f - quotient * (1.0f - t * (e * (1.0f + e) * quotient)),
              d = (t + 1.1924312f) + 3.0439375e-9f;
  const float near = d * polynomial(d, 2.6694793e-1f, 2.0473136e-1f, 4.1907713e-2f, -2.0279977e-2f,
                                    -1.5819574e-2f, -3.1928266e-3f, 1.1100873e-3f);
  return if_finite(x, x > -0.3f ? above : abs(d) < 0.3125f ? near : below);
}

SHARED float selu(float x) {
  return x > 0.0f ? 1.0507010f * x : 1.7580993f * expm1(x);
}
SHARED float selu_grad(float x) {
  return x > 0.0f ? 1.0507010f : scaled_exp(x > 0.0f ? 0.0f : x, 0.0f, 1.7580993f);
}

SHARED float hardswish_grad(float x) {
  return x <= -3.0f  ? 0.0f
         : x >= 3.0f ? 1.0f
                     : (x + 1.5f) * 0.33333334f;  // a quotient may become a product
}

// Uses N. Juffa's polynomials.
SHARED float erf(float x) {
  const float size = abs(x), within = size > 4.0f ? 4.0f : size;  // erf is 1 from 3.92 on
  const float near = mul_add(polynomial(x * x, 1.28379166e-1f, -3.76125336e-1f, 1.12819925e-1f,
                                        -2.67681349e-2f, 4.99119423e-3f, -5.96761703e-4f),
                             x, x);
  const float power =
      mul_add(polynomial(within, -1.28717512e-1f, -6.34846687e-1f, -1.06777877e-1f, 2.42546219e-2f,
                         -3.88396438e-3f, 3.83197126e-4f, -1.72853470e-5f),
              within, -within);
  return size > 0.927734375f ? copy_sign(1.0f - exp(power), x) : near;
}
SHARED float erf_grad(float x) {
  const float size = abs(x), t = size > 12.0f ? 12.0f : size, high = first_bits(t), low = t - high;
  return x == x ? scaled_exp(-high * high, -low * (t + high), 1.1283792f) : x;
}

// With w = -log(1 - x^2), erfinv(x) is x times a polynomial of w or of its root (M. Giles,
// "Approximating the erfinv function", 2012), and its slope is one over 1 - x^2.
SHARED float erfinv(float x) {
  const float w = -log((1.0f - x) * (1.0f + x)), root = sqrt(w) - 3.0f, near = w - 2.5f;
  const float inner =
      polynomial(near, 1.5014094f, 2.4664028e-1f, -4.177387e-3f, -1.2527419e-3f, 2.1834444e-4f,
                 -4.9633604e-6f, -3.462706e-6f, 4.6617345e-7f, 2.3232747e-8f, -8.791258e-9f);
  const float outer =
      polynomial(root, 2.8329768f, 1.0016749f, 9.445192e-3f, -7.636955e-3f, 5.6878068e-3f,
                 -3.5989885e-3f, 1.4828594e-3f, -5.3764255e-5f, -3.0775185e-4f, 1.1364228e-4f);
  return x * (w < 5.0f ? inner : abs(x) == 1.0f ? infinity : outer);
}
SHARED float erfinv_grad(float x) {
  const float rest = (1.0f - x) * (1.0f + x), w = -log(rest), root = sqrt(w) - 3.0f,
              near = w - 2.5f;
  const float inner =
      polynomial(near, 5.760328e-1f, -7.784445e-2f, 1.2516913e-2f, -1.7578035e-3f, 2.0040915e-4f,
                 -1.7669148e-5f, 1.1599101e-6f, -6.839031e-8f, 5.0473044e-9f);
  const float outer =
      polynomial(root, 3.3420017e-1f, -1.067141e-1f, 3.1777564e-2f, -8.457258e-3f, 1.7104093e-3f,
                 -1.1683088e-6f, -2.5929927e-4f, 1.6057728e-4f, -4.8860653e-5f, 5.6805893e-6f);
  return abs(x) == 1.0f ? infinity : (w < 5.0f ? inner : outer) / rest;
}
