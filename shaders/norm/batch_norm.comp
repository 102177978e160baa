//! buffers: x:T:read mean:f32:read var:f32:read weight:f32:read bias:f32:read y:T:write
//! types: T = f32 f16
//! params: BatchNormParams
//! local: 64
//! precise: yes
#define AFTER(k, v) v
#define AFTER8(i, lo, hi)
#include "norm/batch_norm_apply.glsl"
