//! buffers: a:T:read b:T:read c:U:read_write
//! types: T,U = f16,f16 f16,f32
//! params: GemmParams
//! reference: none
//! local: subgroups
//! grid: groups
//! requires: subgroup cooperative
//! define: FACTORS=f16,bf16 TILE=64,128
// c = alpha a b (+ beta c) of 16-bit factors on GPUs with cooperative matrices. See gemm_tiled.
#include "matrix/gemm_tiled.comp"
