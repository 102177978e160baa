//! buffers: a:T:read b:T:read s:T:read t:T:read y:T:write
//! types: T = f16
//! params: GemmChainParams
//! reference: none
//! local: subgroups
//! grid: groups
//! requires: subgroup cooperative
//! define: FACTORS=f16,bf16 TILE=64,128
//! precise: yes
// This is gemm_chain_tiled for 16-bit factors on GPUs with cooperative matrices.
#include "matrix/gemm_chain_tiled.comp"
