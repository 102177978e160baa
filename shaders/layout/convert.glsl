// Conversion of elements of type T to type U, for kernels that copy.
#include "common/numbers.glsl"
#if U_FLOAT
#define CONVERT(x) U_value(x)
#define CONVERT4(x) U_vec4(x)
#else
#define CONVERT(x) to_int(x)
#define CONVERT4(x) to_int(x)
#endif
