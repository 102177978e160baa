//! buffers: x:T:read w:T:read y:f32:write
//! types: T = f16
//! params: ConvTileParams
//! reference: none
//! local: subgroups
//! grid: groups
//! requires: subgroup cooperative
//! define: FACTORS=f16,bf16 TILE=64,128
// The weight's gradient, transposed, of 16-bit factors on GPUs with cooperative matrices. See conv_wgrad_tiled.
#include "conv/conv_wgrad_tiled.comp"
