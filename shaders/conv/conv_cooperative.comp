//! buffers: x:T:read w:T:read y:U:write
//! types: T,U = f16,f16 f16,f32
//! params: ConvTileParams
//! reference: none
//! local: subgroups
//! grid: groups
//! requires: subgroup cooperative
//! define: FACTORS=f16,bf16 TILE=64,128
// Convolution (forward, and the input's gradient) of 16-bit factors on GPUs with cooperative matrices. See conv_tiled.
#include "conv/conv_tiled.comp"
