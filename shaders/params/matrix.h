// Matrix products and convolutions: their results, and the kernels by which backends/vulkan/matrix*
// computes them.

// matmul: c = alpha * a @ b + beta * c for batch[0] x batch[1] matrices, accumulated in f32. a [m,
// k] and b [k, n] have any element strides of which one is 1; rows of c are dense. c is not read
// when beta == 0.
struct MatmulParams {
  uint offset[3];  // a, b, c
  uint m, n, k;
  uint batch[2];
  uint a_row, a_col, b_row, b_col, c_row;
  uint a_batch[2], b_batch[2], c_batch[2];
  float alpha, beta;
};

// conv2d: x [batch, in_h, in_w, in_c], w [out_c, kernel_h, kernel_w, in_c / groups],
// y [batch, out_h, out_w, out_c], all dense. conv2d_dgrad: dy, w -> dx. conv2d_wgrad: x, dy -> dw
// (f32). Padding is symmetric zeros.
//
// Vulkan devices run some of these as one element of the result per thread: conv_direct,
// conv_dgrad_direct, and conv_wgrad_direct, which makes partial sums [parts, dw] over line_chunk
// lines of the outputs of all images each, one element of one part per thread.
struct Conv2dParams {
  uint offset[3];
  uint batch, in_h, in_w, in_c, out_h, out_w, out_c;
  uint kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  uint groups;
  uint n, line_chunk;  // of the direct kernels: threads, lines
};

// ---- parts of matmul and conv2d (issued by backends/vulkan/matrix*, never by an op) ----------
// gemm_subgroup, gemm_tiled: c[s] = alpha * a[:, ks] @ b[ks, :], plus beta * c[s] in the variants
// that add, for `batches` matrices and for each of `splits` parts of k, where ks is the range of
// part s, of k_chunk elements. One workgroup per tile, part and matrix.
//
// gemm_subgroup: a is stored as [m, k] or [k, m], b as [k, n] or [n, k]. The variant is {lanes
// across columns, elements of c stored at a time, a transposed, b transposed}. Offsets and the
// steps of rows and batches are in words of 16 bytes. b [k, n] may lie in panels of one tile's
// columns, b_panel elements apart, and a [k, m] in panels of one tile's rows; for plain matrices
// the panels are a tile's width apart.
//
// gemm_tiled: any strides; of row and col one is 1.
struct GemmParams {
  uint offset[3];  // a, b, c
  uint m, n, k;
  uint k_chunk, splits, batches;
  uint batch_inner;                 // batch[1] of MatmulParams
  uint a_row, a_col, b_row, b_col;  // element strides
  uint c_row;
  uint a_batch[2], b_batch[2], c_batch[2];
  uint a_panel, b_panel;
  uint c_split;  // elements from part to part
  float alpha, beta;
};

// matrix_pack: y [batches, panels, rows, panel] = x [batches, rows, cols] with any strides. Each
// panel has `panel` columns, a multiple of 4, and zeros behind the last one. One thread per 4
// elements.
struct MatrixPackParams {
  uint offset[2];
  uint n;  // threads: elements of y / 4
  uint rows, cols, panel;
  uint batch_inner, x_batch[2], x_row, x_col;
};

// matrix_reduce: y[z, i, j] = beta * y + alpha * sum over parts, in order, of
// x[part * x_split + z * x_batch + i * x_i + j / inner * x_outer + j % inner * x_inner].
struct MatrixReduceParams {
  uint offset[2];
  uint n;  // elements of y
  uint rows, cols, parts, x_split, x_batch, x_i, inner, x_outer, x_inner;
  uint batch_inner, y_batch[2], y_row;
  float alpha, beta;
};

// The implicit matrix product of a convolution. Row (image, i, j) of the left matrix is read from x
// [images, in_h, in_row] in taps_h x taps_w runs of `run` elements. The first run begins at (i *
// stride_h + origin_h, j * stride_w + origin_w), the next ones step_h and step_w further. Elements
// outside the image are zero. Horizontal sizes are in elements, not pixels.
//
// conv_subgroup: y = x @ w, with w [taps, run rounded up, w_row] as conv_pack writes it. Row
// (image, i, j) of y begins at image * y_image + i * y_h + j * y_w and has n columns. The z-th
// group's parts begin z * x_group, z * w_group and z * y_group further.
//
// conv_wgrad_subgroup: y = x^T @ w for w [rows, n], whose rows are w_row elements apart. y is [taps
// * run, y_w], with part s of k_chunk rows at s * y_image, and zeros where there is no pixel.
//
// The variant is {lanes, elements of y stored at a time, whole words of x (for the gradient, of
// w)}.
//
// conv_tiled, conv_wgrad_tiled: the same products.
struct ConvTileParams {
  uint offset[3];  // x, w, y
  uint images, rows_h, rows_w;
  uint in_h, in_row;
  uint stride_h, stride_w;
  int origin_h, origin_w;
  uint taps_h, taps_w;
  int step_h, step_w;
  uint run, w_row, n;
  uint y_image, y_h, y_w;
  uint groups, x_group, w_group, y_group;
  uint k_chunk, splits;
  uint over_w, over_h, over_shifts;  // that divide by rows_w and rows_h: conv_pixel.glsl
};

// conv_pack: writes w of conv2d as the right matrix of conv_subgroup and conv_tiled: y [groups,
// taps_h, taps_w, tap_rows, y_row], or with variant {1} [groups, taps_h, taps_w, tap_rows / panel,
// y_row, panel]. Row e of a tap is channel e % channels of its (e / channels)-th pixel, and column
// n of y is output n: x[group * x_group + n * x_n + channel * x_c + kh * x_kh + kw * x_kw].
// Elements beyond run, n and x_channels are zero.
struct ConvPackParams {
  uint offset[2];
  uint total;  // elements of y / 4: threads
  uint taps_h, taps_w, tap_rows, run, channels, x_channels, n, y_row;
  int kh0, kh_step, kw0, kw_step;
  uint x_group, x_n, x_c, x_kh, x_kw;
  uint panel;  // rows
};
