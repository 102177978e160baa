// Matrices that a subgroup holds together: factors of 16-bit floats, MATRIX_M x MATRIX_K and MATRIX_K x MATRIX_N, and
// sums of f32, MATRIX_M x MATRIX_N. Devices list their shapes; each side is 8 or 16. One source serves
// GL_KHR_cooperative_matrix and, for older compilers, GL_NV_cooperative_matrix, to which cooperative.py translates:
// there the low byte of the scope is that of a subgroup, and the use of the matrix stands above it. Loads and stores
// are of matrices whose rows (or, for load_columns, columns) lie `stride` words apart in `words`.
#if KHR_MATRICES
#define LeftMatrix coopmat<FACTOR, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA>
#define RightMatrix coopmat<FACTOR, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB>
#define SumMatrix coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
#define load_rows(m, words, at, stride) coopMatLoad(m, words, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define load_columns(m, words, at, stride) coopMatLoad(m, words, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define store_rows(m, words, at, stride) coopMatStore(m, words, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define multiply_add coopMatMulAdd
#else
#define LeftMatrix fcoopmatNV<16, 0x103, MATRIX_M, MATRIX_K>
#define RightMatrix fcoopmatNV<16, 0x203, MATRIX_K, MATRIX_N>
#define SumMatrix fcoopmatNV<32, 0x303, MATRIX_M, MATRIX_N>
#define load_rows(m, words, at, stride) coopMatLoadNV(m, words, at, stride, false)
#define load_columns(m, words, at, stride) coopMatLoadNV(m, words, at, stride, true)
#define store_rows(m, words, at, stride) coopMatStoreNV(m, words, at, stride, false)
#define multiply_add coopMatMulAddNV
#endif
