// A product of f16 matrices by matrices of whole workgroups (VK_NV_cooperative_matrix2), which the driver feeds.
#version 460
#pragma use_vulkan_memory_model
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_buffer_reference : require

layout(local_size_x = DOWN * ACROSS * SUBGROUP) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly restrict buffer Words { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) restrict buffer Sums { float at[]; };
layout(push_constant) uniform Push { uint m, n, k, unused; Words a, b; Sums c; } p;

void main() {
  const uint tiles = p.n / TILE_N, block = gl_WorkGroupID.x / (8 * tiles), in_block = gl_WorkGroupID.x % (8 * tiles);
  const uint rows = min(8, p.m / TILE_M - block * 8);
  const uint m0 = (block * 8 + in_block % rows) * TILE_M, n0 = in_block / rows * TILE_N;
  const uint m = p.m & ~7u, n = p.n & ~7u, depth = p.k & ~7u;  // tells that rows are aligned
  coopmat<SUM, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator> sums =
      coopmat<SUM, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>(0.0);
  tensorLayoutNV<2> in_a = createTensorLayoutNV(2), in_b = createTensorLayoutNV(2), in_c = createTensorLayoutNV(2);
  in_a = A_ALONG_K == 1 ? setTensorLayoutDimensionNV(in_a, m, depth) : setTensorLayoutDimensionNV(in_a, depth, m);
  in_b = B_ALONG_K == 1 ? setTensorLayoutDimensionNV(in_b, n, depth) : setTensorLayoutDimensionNV(in_b, depth, n);
  in_c = setTensorLayoutDimensionNV(in_c, m, n);
  tensorViewNV<2, false, 1, 0> turned = createTensorViewNV(2, false, 1, 0);
  for (uint k = 0; k < depth; k += TILE_K) {
    coopmat<float16_t, gl_ScopeWorkgroup, TILE_M, TILE_K, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeWorkgroup, TILE_K, TILE_N, gl_MatrixUseB> b;
    if (A_ALONG_K == 1)
      coopMatLoadTensorNV(a, p.a.at, 0, sliceTensorLayoutNV(in_a, m0, TILE_M, k, TILE_K));
    else
      coopMatLoadTensorNV(a, p.a.at, 0, sliceTensorLayoutNV(in_a, k, TILE_K, m0, TILE_M), turned);
    if (B_ALONG_K == 1)
      coopMatLoadTensorNV(b, p.b.at, 0, sliceTensorLayoutNV(in_b, n0, TILE_N, k, TILE_K), turned);
    else
      coopMatLoadTensorNV(b, p.b.at, 0, sliceTensorLayoutNV(in_b, k, TILE_K, n0, TILE_N));
    sums = coopMatMulAdd(a, b, sums);
  }
  coopMatStoreTensorNV(coopmat<float, gl_ScopeWorkgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>(sums), p.c.at, 0,
                       sliceTensorLayoutNV(in_c, m0, TILE_M, n0, TILE_N));
}
